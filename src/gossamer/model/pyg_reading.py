"""A network and its weights from one of PyTorch Geometric's models, GCN, GraphSAGE, GIN or GAT (basic_gnn).

Every option of a model is either carried over exactly or refused by its name. Dropout between layers is: after jumping
knowledge it is drawn for the joined columns, where PyTorch Geometric joins columns that it has drawn for.
"""

import copy
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn, cast

import torch
from torch import Tensor, nn

from gossamer.data.standardisation import Transform
from gossamer.errors import GossamerError, shown
from gossamer.layer_specs import LayerSpec, NetworkOptions, PygNetwork, normalise_layers
from gossamer.model.modules import GraphNetwork
from gossamer.model.network import build_layers, find_shift
from gossamer.model.pyg_modules import find_standardisation, from_pyg_name
from gossamer.model.state_dicts import from_state_dict

MODEL_CONVS = {"GCN": ("GCNConv",), "GraphSAGE": ("SAGEConv",), "GIN": ("GINConv",), "GAT": ("GATConv", "GATv2Conv")}
WEIGHT_TYPES = {torch.float32: "float32", torch.float64: "float64"}
_SUMS = ("add", "sum")
NORM_REMEDY = "take LayerNorm, which normalises each vertex by itself: norm='layer_norm', norm_kwargs={'mode': 'node'}"
# Values of a convolution's attributes that are carried over, and why no others are
_LOOPS = {"add_self_loops": ((True,), "every vertex has a self-loop in these layers")}
_FLOW = {"flow": (("source_to_target",), "edges have no direction")}
_ATTENTION: Mapping[str, tuple[tuple[Any, ...], str]] = {
    **_FLOW,
    **_LOOPS,
    "aggr": (_SUMS, "attention is a weighted sum"),
    "edge_dim": ((None,), "graphs have no features of edges"),
    "residual": ((False,), "residual connections are around activations here: residual = true in the settings"),
}
CARRIED_OPTIONS: Mapping[str, Mapping[str, tuple[tuple[Any, ...], str]]] = {
    "GCNConv": {
        **_FLOW,
        "normalize": ((True,), "the shift operator is the normalised adjacency"),
        **_LOOPS,
        "aggr": (_SUMS, "the shift operator is a weighted sum"),
        "improved": ((False,), "self-loops have the weight 1"),
    },
    "SAGEConv": {
        **_FLOW,
        "aggr": (("mean", *_SUMS), "a sum or a mean takes the weights before it, so that no features are sent"),
        "project": ((False,), "the layer has one map before its aggregation; `before` in the settings is another"),
    },
    "GINConv": {**_FLOW, "aggr": (_SUMS, "the layer is a sum")},
    "GATConv": _ATTENTION,
    "GATv2Conv": {**_ATTENTION, "share_weights": ((False,), "source and target have weights of their own")},
}


def from_pyg_module(module: Any) -> PygNetwork:
    """The network and the weights of a torch_geometric.nn.GCN, GraphSAGE, GIN or GAT, to start from:
    gossamer.train(graph, initial=gossamer.from_pyg_module(module)). What Gossamer would compute otherwise is refused by
    name."""
    name = _find_model(module)
    activation = _read_activation(module.act)
    norm = _read_norms(module, name)
    specs = [_read_conv(conv, MODEL_CONVS[name], module.act) for conv in module.convs]
    weights = {from_pyg_name(key, len(module.convs)): part for key, part in _read_state(module).items()}
    _check_parts(module)
    rates = {spec.attention_dropout or 0.0 for spec in specs}
    if len(rates) == 1:  # the network's, which may be changed
        specs = [replace(spec, attention_dropout=None) for spec in specs]
    jump = module.jk_mode
    if jump not in (None, "last", "cat", "max"):
        _refuse(f"jk={jump!r}", "jumping knowledge is a concatenation or a maximum", "take jk='cat' or jk='max'")
    last = specs.pop() if jump is None else None
    described = [replace(spec, width=_find_width(conv)) for spec, conv in zip(specs, module.convs, strict=False)]
    if last is not None:
        described.append(last)
    elif jump == "last":
        described.append(LayerSpec("mlp", bias=True))
    settings: dict[str, Any] = {
        "layers": normalise_layers(described),
        "hidden": tuple(spec.width for spec in described if spec.width is not None),
        "activation": activation,
        "norm": norm,
        "jump": jump if jump in ("cat", "max") else "none",
        "bias": True,
        "attention_dropout": min(rates) if len(rates) == 1 else 0.0,
        "dropout": float(module.dropout.p),
        "input_dropout": 0.0,
    }
    outputs = module.lin.out_features if jump is not None else _find_width(module.convs[-1])
    inputs = next(part.shape[1] for key, part in weights.items() if key.startswith("convs.0.") and part.ndim == 2)
    options = NetworkOptions(**settings)
    network = build_layers(options, inputs, outputs)
    from_state_dict(network, weights, f"the {name}")  # a fault here is one of this file
    ours = GraphNetwork(network, find_shift(options)).double()
    ours.load_state_dict(weights)
    _compare(module, ours.eval(), inputs)
    arrays = {key: part.numpy() for key, part in find_standardisation(module).items()}
    settings["dtype"] = WEIGHT_TYPES[next(iter(weights.values())).dtype]
    transform = Transform(**arrays) if arrays else None
    return PygNetwork(settings, weights, inputs, outputs, transform)


def _find_model(module: Any) -> str:
    """Name of the model's class, or of the one that it derives from without a `forward` of its own."""
    library = sys.modules.get("torch_geometric.nn")
    known = {} if library is None else {getattr(library, name): name for name in MODEL_CONVS}
    for base in type(module).__mro__:
        if base in known:
            if cast(Any, type(module)).forward is not cast(Any, base).forward:
                _refuse(f"{type(module).__name__}.forward", f"it is another than {base.__name__}'s", "take that one")
            return known[base]
    raise GossamerError(
        "expected one of PyTorch Geometric's models, torch_geometric.nn.GCN, GraphSAGE, GIN or GAT, got "
        f"{type(module).__module__}.{type(module).__qualname__}; weights of other networks can be given as a state "
        "dict, initial=module.state_dict(), with settings that describe them"
    )


def _check_parts(module: nn.Module) -> None:
    """Refuse hooks, but for those of the standardisation, and weights that are not to be trained."""
    for name, part in module.named_modules():
        hooks = sum(len(value) for key, value in vars(part).items() if re.search(r"_forward(_pre)?_hooks$", key))
        if hooks > (2 if part is module and find_standardisation(module) else 0):
            _refuse(f"a forward hook{name and ' of ' + name}", "hooks are unknown functions", "remove it")
    frozen = [name for name, part in module.named_parameters() if not part.requires_grad]
    if frozen:
        _refuse(f"{frozen[0]} with requires_grad=False", "all weights are trained", "call module.requires_grad_(True)")


def _compare(module: nn.Module, ours: nn.Module, inputs: int) -> None:
    """Refuse a module that computes something else than its options say, on a small graph."""
    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 0, 3, 1, 3, 3, 4], [1, 0, 2, 1, 3, 2, 3, 0, 3, 1, 4, 3]])
    x = torch.randn(5, inputs, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    theirs = copy.deepcopy(module).cpu().double().eval()
    for part in theirs.modules():
        part._forward_pre_hooks.clear()  # those of the standardisation
        part._forward_hooks.clear()
        for name in ("_cached_edge_index", "_cached_adj_t"):  # of a GCNConv that has seen another graph
            if hasattr(part, name):
                setattr(part, name, None)
    remedy = "build it anew and load its state dict"
    with torch.no_grad():
        found = ours(x, edges)
        try:
            wanted = theirs(x, edges)
        except Exception as error:  # of any code that a user has put there
            _refuse("a part", f"it fails on a small graph ({shown(str(error))})", remedy)
    near = 1e-6 * float(wanted.abs().max())
    if found.shape != wanted.shape or not torch.allclose(found, wanted, rtol=1e-6, atol=near):
        _refuse("a part", "it computes something else than its options say", remedy)


def _read_state(module: nn.Module) -> dict[str, Tensor]:
    state = module.state_dict()
    lazy = [name for name, part in state.items() if isinstance(part, nn.parameter.UninitializedParameter)]
    if lazy:
        _refuse(f"{lazy[0]} without a shape", "in_channels=-1 waits for data", "give in_channels, or call it once")
    kinds = {part.dtype for part in state.values()}
    if len(kinds) > 1 or not kinds <= set(WEIGHT_TYPES):
        found = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
        _refuse(f"the type {found}", "weights are float32 or float64", "call module.float() or module.double()")
    return {name: part.detach().cpu().clone() for name, part in state.items()}


def _read_activation(act: Any) -> str:
    functions = {
        torch.relu: "relu",
        nn.functional.relu: "relu",
        torch.tanh: "tanh",
        nn.functional.tanh: "tanh",
        nn.functional.elu: "elu",
    }
    if act is None or type(act) is nn.Identity:
        return "identity"
    if isinstance(act, nn.Module):
        names = {nn.ReLU: "relu", nn.Tanh: "tanh", nn.ELU: "elu"}
        if type(act) in names and getattr(act, "alpha", 1.0) == 1.0:
            return names[type(act)]
    elif act in functions:
        return functions[act]
    found = repr(act) if isinstance(act, nn.Module) else getattr(act, "__name__", shown(act))
    _refuse(f"act={found}", "hidden layers have relu, tanh, elu or none", "take one of these")


def _read_norms(module: Any, name: str) -> str:
    norms = [norm for norm in module.norms if type(norm) is not nn.Identity]
    if not norms:
        return "none"
    for norm in norms:
        kind = _name_class(norm)
        if kind != "LayerNorm":
            _refuse(f"norm={kind}", "it may need sums over the vertices of all agents in every step", NORM_REMEDY)
        if getattr(norm, "mode", "node") != "node":
            _refuse(f"norm=LayerNorm(mode={norm.mode!r})", "it needs sums over the vertices of all agents", NORM_REMEDY)
        if norm.weight is None or norm.bias is None:
            _refuse("LayerNorm(affine=False)", "a normalised layer has weights", "take affine=True")
        if norm.eps != 1e-5:
            _refuse(f"LayerNorm(eps={norm.eps})", "it is 1e-5 for all networks", "take eps=1e-5")
    if len(norms) != len(module.norms) - (module.jk_mode is None):
        _refuse("norms of some hidden layers", "all of a model's hidden layers are alike", f"build a {name} anew")
    if module.act_first and module.act is not None:
        _refuse("act_first=True", "normalisation is before the activation", "take act_first=False")
    return "layer"


def _read_conv(conv: Any, known: tuple[str, ...], act: Any) -> LayerSpec:
    """The options of a convolution, without its width."""
    kind = _name_class(conv)
    if kind not in known:
        _refuse(f"the convolution {kind}", f"the model's are {' or '.join(known)}", "build the model anew")
    if isinstance(getattr(conv, "in_channels", 0), tuple | list):
        _refuse(f"in_channels={conv.in_channels}", "graphs are not bipartite", "give one number")
    for name, (values, reason) in CARRIED_OPTIONS[kind].items():
        value = getattr(conv, name)
        if isinstance(value, list) or value not in values:
            remedy = f"take {name}={values[0]!r}"
            if name == "aggr" and value == "max" and kind == "SAGEConv":
                reason = (
                    "PyTorch Geometric takes the maximum of neighbours' features before the weights, which would send "
                    "raw features to other agents; Gossamer's own takes it after them"
                )
                remedy = "take aggr='mean', or train layers = 'sage' with aggregate = 'max' from drawn weights"
            _refuse(f"{kind}({name}={value!r})", reason, remedy)
    try:
        if kind == "GCNConv":
            return LayerSpec("gcn", order=1, bias=conv.bias is not None)
        if kind == "SAGEConv":
            aggregate = "mean" if conv.aggr == "mean" else "sum"
            options = {"root_weight": conv.root_weight, "normalise": conv.normalize}
            return LayerSpec("sage", aggregate=aggregate, bias=conv.lin_l.bias is not None, **options)
        if kind == "GINConv":
            return _read_gin(conv, act)
        return LayerSpec(
            "gat" if kind == "GATConv" else "gatv2",
            heads=conv.heads,
            concat=conv.concat,
            negative_slope=conv.negative_slope,
            attention_dropout=conv.dropout,
            bias=conv.bias is not None,
        )
    except ValueError as error:
        raise GossamerError(f"{kind}: {error}") from None


def _read_gin(conv: Any, act: Any) -> LayerSpec:
    inner = conv.nn
    if _name_class(inner) != "MLP" or len(inner.lins) != 2 or not inner.plain_last or any(inner.dropout):
        _refuse(f"GINConv(nn={_name_class(inner)})", "the inner network has two linear maps", "take the GIN's own MLP")
    if any(type(norm).__name__ not in ("Identity", "NoneType") for norm in inner.norms):
        _refuse(
            f"a {type(inner.norms[0]).__name__} inside GINConv's MLP",
            "the inner network has no normalisation",
            "give GIN the module torch_geometric.nn.LayerNorm(hidden_channels, mode='node') as norm, not its name: it "
            "is then around the layers alone",
        )
    if _read_activation(inner.act) != _read_activation(act):
        _refuse(f"GINConv's act={inner.act}", "the inner network has the model's activation", "build the GIN anew")
    learnt = isinstance(conv.eps, nn.Parameter)
    first, second = inner.lins
    if (first.bias is None) != (second.bias is None):
        _refuse("GINConv's MLP(bias=[...])", "both of its maps have a bias, or none", "take bias=True")
    return LayerSpec(
        "gin",
        epsilon=0.0 if learnt else float(conv.eps),
        learn_epsilon=learnt,
        inner=first.out_channels,
        bias=first.bias is not None,
    )


def _name_class(part: Any) -> str:
    """Name of a class of PyTorch or PyTorch Geometric; of others with their module, so that it is no name of theirs."""
    kind = type(part)
    known = kind.__module__.partition(".")[0] in ("torch", "torch_geometric")
    return kind.__qualname__ if known else f"{kind.__module__}.{kind.__qualname__}"


def _find_width(conv: Any) -> int:
    if type(conv).__name__ == "GINConv":
        return int(conv.nn.lins[-1].out_channels)
    return int(conv.out_channels * (conv.heads if getattr(conv, "concat", False) else 1))


def _refuse(found: str, reason: str, remedy: str) -> NoReturn:
    raise GossamerError(f"{found} of the module cannot be carried over: {reason}; {remedy}")
