"""Keys as text: 32 bytes in 40 characters of Z85, the printable form that ZeroMQ uses (ZeroMQ RFC 32/Z85).

Python's base64 has the same code with the alphabet of RFC 1924, so that only letters are exchanged here.
"""

import base64

from gossamer.errors import GossamerError

KEY_LENGTH = 40  # characters
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_RFC1924 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def encode_key(key: bytes) -> str:
    """A key of 32 bytes as text."""
    return base64.b85encode(key).translate(bytes.maketrans(_RFC1924, _Z85)).decode()


def decode_key(text: str) -> bytes:
    """The 32 bytes of a key; a ValueError for any other text."""
    if len(text) != KEY_LENGTH or not set(text.encode()) <= set(_Z85):
        raise ValueError(f"expected {KEY_LENGTH} characters of Z85")
    return base64.b85decode(text.encode().translate(bytes.maketrans(_Z85, _RFC1924)))


def is_key(text: str) -> bool:
    """Return whether a text is a key."""
    try:
        decode_key(text)
    except ValueError:
        return False
    return True


def check_key(key: object, where: str) -> str:
    """A public key as it is, or an error that names where it was found."""
    if isinstance(key, str) and is_key(key):
        return key
    raise GossamerError(f"{where}: {key!r} is not a public key of {KEY_LENGTH} characters, as gossamer keys prints it")
