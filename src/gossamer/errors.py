"""What Gossamer raises and warns with when a user's input, not the program, is at fault."""


class GossamerError(ValueError):
    """A mistake in the input: the message says what was expected, what came and what to do."""


class GossamerWarning(UserWarning):
    """Input that is legal but probably not what the user meant."""
