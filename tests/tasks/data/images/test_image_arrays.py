"""Images in files: every kind of JPEG and PNG becomes RGB, and a damaged file is an error of one line."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from dropbench.harness.errors import InputError
from dropbench.tasks.data.classification import Pixels
from dropbench.tasks.data.images.image_arrays import MAX_PIXELS, FileImages

GRADIENT = np.arange(6 * 8, dtype=np.uint8).reshape(6, 8) * 5
COLORS = np.stack([GRADIENT, GRADIENT[::-1], 255 - GRADIENT], axis=2)


def encoded(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def read(folder: Path, content: bytes, name: str = "image.png") -> Pixels:
    (folder / name).write_bytes(content)
    return FileImages.from_names(folder, [name])[0]


def refused(folder: Path, content: bytes, name: str = "image.png") -> str:
    with pytest.raises(InputError) as caught:
        read(folder, content, name)
    return str(caught.value)


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def header(width: int, height: int) -> bytes:
    """Return a PNG with one bit per pixel that claims this size but has only the first row of pixels."""
    size = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(bytes(width // 8 + 2)))


@pytest.mark.parametrize(
    ("pixels", "expected"),
    [
        (COLORS, COLORS),
        (GRADIENT > 100, np.where(GRADIENT > 100, 255, 0)[..., None]),
        (GRADIENT.astype(np.uint16) * 256 + 99, GRADIENT[..., None]),  # the upper byte is used
    ],
)
def test_pixels_of_every_depth(tmp_path: Path, pixels: Any, expected: Any) -> None:
    image = read(tmp_path, encoded(Image.fromarray(pixels)))
    assert (str(image.dtype), image.shape, image.flags.writeable) == ("uint8", (6, 8, 3), True)
    assert (image == expected).all()


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_gray_is_gray_in_all_three(tmp_path: Path, form: str) -> None:
    image = read(tmp_path, encoded(Image.fromarray(GRADIENT), form))
    assert image.shape == (6, 8, 3)
    assert (image == image[..., :1]).all()
    assert np.abs(image[..., 0].astype(int) - GRADIENT).max() <= (0 if form == "PNG" else 12)


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_transparency_is_left_out(tmp_path: Path, mode: str) -> None:
    alpha = Image.fromarray(GRADIENT)
    pixels = GRADIENT if mode == "LA" else COLORS
    opened = Image.fromarray(pixels)
    opened.putalpha(alpha)
    assert opened.mode == mode
    assert (read(tmp_path, encoded(opened)) == pixels.reshape(6, 8, -1)).all()


@pytest.mark.parametrize("transparency", [3, bytes(range(256))])
def test_a_palette_gives_its_colors(tmp_path: Path, transparency: int | bytes) -> None:
    paletted = Image.fromarray(GRADIENT % 16)
    paletted.putpalette([value for number in range(256) for value in (number, 255 - number, 7)])
    image = read(tmp_path, encoded(paletted, transparency=transparency))
    assert (image[..., 0] == GRADIENT % 16).all()
    assert (image[..., 1] == 255 - GRADIENT % 16).all()


def test_cmyk_becomes_rgb(tmp_path: Path) -> None:
    inks = Image.merge("CMYK", [Image.new("L", (8, 6), value) for value in (200, 0, 0, 0)])
    image = read(tmp_path, encoded(inks, "JPEG", quality=95), "image.jpg")
    assert np.abs(image.astype(int) - [55, 255, 255]).max() < 6


def test_the_bytes_decide_the_format_and_not_the_suffix(tmp_path: Path) -> None:
    assert (read(tmp_path, encoded(Image.fromarray(COLORS)), "image.JPEG") == COLORS).all()
    assert "image.jpg: the image is neither JPEG nor PNG" in refused(
        tmp_path, encoded(Image.fromarray(COLORS), "BMP"), "image.jpg"
    )


def test_exif_orientation_is_ignored(tmp_path: Path) -> None:
    rotated = Image.Exif()
    rotated[0x0112] = 6
    rotated[0x010F], rotated[0x011A] = "a maker of cameras", 72.0
    for exif in (rotated, rotated.tobytes()[:-12]):  # odd metadata give no warning
        assert read(tmp_path, encoded(Image.fromarray(COLORS), "JPEG", exif=exif), "image.jpg").shape == (6, 8, 3)


@pytest.mark.parametrize(("width", "height"), [(10_000, 9_000), (2**31 - 1, 2**31 - 1)])
def test_an_enormous_image_is_refused_by_its_header(tmp_path: Path, width: int, height: int) -> None:
    message = refused(tmp_path, header(width, height))
    assert message.endswith(f"image.png: the image is too large: expected at most {MAX_PIXELS:,} pixels")


def test_a_decompression_bomb_in_text_is_reported(tmp_path: Path) -> None:
    content = encoded(Image.fromarray(COLORS))
    bomb = chunk(b"zTXt", b"key\0\0" + zlib.compress(bytes(2**26)))
    message = refused(tmp_path, content[:33] + bomb + content[33:])
    assert "the image is damaged: " in message


def test_a_folder_in_place_of_an_image_is_reported(tmp_path: Path) -> None:
    images = FileImages.from_names(tmp_path, ["image.png"])
    (tmp_path / "image.png").mkdir()
    with pytest.raises(InputError, match=r"image\.png: the image cannot be read: Is a directory"):
        images[0]


FILES = (
    encoded(Image.fromarray(COLORS)),
    encoded(Image.fromarray(COLORS), "JPEG"),
    encoded(Image.fromarray(COLORS), "JPEG", progressive=True),
    encoded(Image.fromarray(COLORS).convert("P"), transparency=bytes(range(99))),
)


@given(content=st.sampled_from(FILES), changes=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=4)), max_size=3))
@example(content=FILES[1], changes=[(0.0, b"\xff\xd8\xff\xe1")])
def test_any_content_is_an_image_or_an_error_of_one_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, changes: list[tuple[float, bytes]]
) -> None:
    changed = bytearray(content)
    for position, inserted in changes:
        start = int(position * len(changed))
        changed[start : start + len(inserted)] = inserted
        del changed[start if not inserted else len(changed) :]
    folder = tmp_path_factory.mktemp("images")
    (folder / "image.png").write_bytes(changed)
    message, image = "", np.zeros((1, 1, 3), np.uint8)
    try:
        image = FileImages.from_names(folder, ["image.png"])[0]
    except InputError as error:
        message = str(error)
    if message:
        assert "\n" not in message
        assert "image.png: the image " in message
    else:
        assert image.ndim == 3
        assert image.shape[2] == 3
