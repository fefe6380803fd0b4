"""Why token ids are not known: for a whole model, or for one request."""

from prefold.proxy.errors import PrefoldError


class TokenizerError(PrefoldError):
    """There is no tokenizer here, or none whose ids would be the engine's."""


class NotEncodable(PrefoldError):
    """The token ids of one request cannot be known here; the message quotes no content."""
