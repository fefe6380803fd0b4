"""Which model a form names."""

import pytest

from prefold.proxy.uploads import named_in

FILE = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nRIFF\r\n'


@pytest.mark.parametrize(
    ("head", "model"),
    [
        (b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b', "m"),
        (
            b'--b\r\nContent-Type: text/plain\r\nContent-Disposition: form-data; name="model"\r\n'
            b"Content-Length: 1\r\n\r\nm\r\n",
            "m",
        ),
        (FILE + b"--b\r\nContent-Disposition: form-data; name=model\r\n\r\norg/m\r\n", "org/m"),
        (FILE, None),
        (b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm', None),
        (b'--b\r\nContent-Disposition: form-data; name="model_id"\r\n\r\nm\r\n', None),
        (b'--b\r\nContent-Disposition: form-data; name="x"; filename="model"\r\n\r\nm\r\n', None),
        (b"", None),
    ],
)
def test_the_models_field_is_found(head: bytes, model: str | None) -> None:
    """In any order of parts and headers, and only once its value is whole."""
    assert named_in(head) == model
