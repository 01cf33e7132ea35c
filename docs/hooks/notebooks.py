"""Hook of the site: notebooks as pages, from their stored outputs. Nothing is run, and nothing comes from elsewhere."""

import base64
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put a page in the place of each notebook, and its pictures beside it."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        stem = file.src_uri.removesuffix(".ipynb")
        text, pictures = convert(json.loads(Path(str(file.abs_src_path)).read_text()), Path(stem).name)
        name = Path(file.src_uri).name
        note = f'<small>This page is a notebook, shown as it ran: <a href="{name}" download>{name}</a></small>'
        files.append(File.generated(config, f"{stem}.md", content=text.replace("\n\n", f"\n\n{note}\n\n", 1)))
        for name, content in pictures.items():
            files.append(File.generated(config, f"{Path(stem).parent}/{name}", content=content))
    return files


def convert(notebook: dict[str, Any], stem: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by file name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", "")})
            if "image/png" in data:
                name = f"{stem}-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![Picture of the cell above]({name})")
            elif "text/html" in data:
                parts.append(f'<div class="output">\n{"".join(data["text/html"])}\n</div>')
            else:
                printed = COLOUR.sub("", "".join(data["text/plain"])).rstrip()
                parts.append(f"```{{ .text .output }}\n{printed}\n```")
    return "\n\n".join(parts) + "\n", pictures
