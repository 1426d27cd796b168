"""Images as cameras, editors and encoders write them, made at random, and what Pillow makes of them: orientations in EXIF
data of all types, in XMP and in texts, and animated WebPs whose first image covers a part of the canvas.

    images.py FILE COUNT [SEED]

writes COUNT images to FILE, each after its length in 4 bytes, and prints a line for each: its kind, and the SHA-256 over
width, height and RGB that `Image.open`, `ImageOps.exif_transpose` and `convert("RGB")` give."""

import hashlib
import io
import random
import struct
import sys
import warnings
import zlib

from PIL import Image, ImageOps

XMP = b"http://ns.adobe.com/xap/1.0/\0"
TYPES = {1: "B", 2: "B", 3: "H", 4: "L", 5: "2L", 6: "b", 7: "B", 8: "h", 9: "l", 10: "2l", 11: "f", 12: "d", 13: "L", 16: "Q"}


def exif(r):
    """EXIF data whose orientation has any type and count, at times damaged."""
    header = r.choice([b"II*\0"] * 20 + [b"MM\0*"] * 20 + [b"MM*\0", b"II\0*", b"MM\0+", b"II+\0", b"JUNK"])
    order = "<" if header.startswith(b"II") else ">"
    start = r.choice([8] * 30 + [10, 30, 5000])
    count = r.choice([0, 1, 1, 2, 3, 5])
    end = start + 2 + 12 * count + r.choice([0, 4])
    entries, behind = b"", b""
    for _ in range(count):
        tag = r.choice([0x112] * 4 + [0x100, 0x10F, 0x11A, 0x8769, r.randrange(1 << 16)])
        kind = r.choice([3] * 6 + [4] * 3 + list(TYPES) + [0, 14, 17, 99])
        values = r.choice([1] * 20 + [0, 2, 2, 3, 4, 5, 9, 100, 1 << 31])
        form = TYPES.get(kind, "H")
        one = lambda: struct.pack(order + form, *([r.choice([2, 3, 4, 5, 6, 7, 8] * 3 + [0, 1, 9])] + [r.choice([1, 1, 2, 0])] * (len(form) - 1)))
        data = b"".join(one() for _ in range(min(values, 200)))
        if len(data) > 4 or values > 200:
            place = r.choice([end + len(behind)] * 6 + [4, 1 << 20])
            behind += data
            data = struct.pack(order + "L", place)
        entries += struct.pack(order + "HHL", tag, kind, values) + data.ljust(4, b"\0")
    written = r.choice([count] * 9 + [count + 1])
    data = header + struct.pack(order + "L", start) + bytes(max(start - 8, 0) if start < 100 else 0)
    data += struct.pack(order + "H", written) + entries + bytes(end - start - 2 - 12 * count) + behind
    if r.random() < 0.1:
        data = data[: r.randrange(len(data) + 1)]
    if r.random() < 0.1 and data:
        at = r.randrange(len(data))
        data = data[:at] + bytes([r.randrange(256)]) + data[at + 1 :]
    return data


def xmp(r):
    """XMP that says how an image is turned, in one of many ways."""
    forms = ['tiff:Orientation="%d"'] * 4 + ["<tiff:Orientation>%d</tiff:Orientation>"] * 3
    forms += ["tiff:Orientation='%d'", 'tiff:Orientation = "%d"', "<tiff:Orientation> %d", "exif:Orientation=\"%d\"", ""]
    parts = [form % r.randrange(12) if form else "tiff:Orientation" for form in r.choices(forms, k=r.randrange(3))]
    return ("<x:xmpmeta " + " ".join(parts) + r.choice(["", "ä", "\0"]) + "/>").encode(r.choice(["utf-8"] * 5 + ["latin-1"]))


def prefixed(r, data):
    return r.choice([b"Exif\0\0"] * 8 + [b"", b"Exif\0\0Exif\0\0", b"Exif\0\0" * 3]) + data


def picture(r, mode="RGB"):
    width, height = r.choice([(5, 3), (3, 5), (8, 2), (4, 4)])
    return Image.frombytes(mode, (width, height), r.randbytes(len(mode) * width * height))


def jpeg(r):
    file = io.BytesIO()
    picture(r).save(file, "JPEG", quality=90, **r.choice([{}, {"dpi": (72, 72)}, {"progressive": True}]))
    file = file.getvalue()
    segment = lambda data: b"\xff\xe1" + struct.pack(">H", len(data) + 2) + data
    segments = []
    for _ in range(r.choice([0, 1, 1, 1, 2])):
        data = exif(r)
        if r.random() < 0.2:
            cut = r.randrange(len(data) + 1)
            segments += [segment(b"Exif\0\0" + data[:cut]), segment(b"Exif\0\0" + data[cut:])]
        else:
            segments.append(segment(r.choice([b"Exif\0\0"] * 5 + [b"Exif\0\0Exif\0\0", b"exif\0\0", b"Exif\0"]) + data))
    segments += [segment(r.choice([XMP] * 5 + [XMP[:-1], b"http://ns.adobe.com/xmp/extension/\0"]) + xmp(r)) for _ in range(r.choice([0, 0, 1, 2]))]
    if r.random() < 0.7:
        r.shuffle(segments)
    at = r.choice([2, 4 + struct.unpack(">H", file[4:6])[0]])
    return file[:at] + b"".join(segments) + file[at:]


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(r):
    image = picture(r)
    rows = b"".join(b"\0" + image.tobytes()[3 * image.width * y :][: 3 * image.width] for y in range(image.height))

    def hexadecimal(data):
        digits, width = data.hex(), r.choice([72, 72, 5, 1000])
        digits = r.choice([digits, digits.upper(), digits + "0", " " + digits])
        lines = "\n".join(digits[i : i + width] for i in range(0, len(digits), width))
        return ("\nexif\n%8d\n" % len(data) + lines + r.choice(["\n", "", "\r\n", "\nx"])).encode()

    def text(key, value):
        if r.random() < 0.4:
            packed = zlib.compress(value)
            packed = packed[: len(packed) - r.choice([0] * 8 + [3, 9])]
            if r.random() < 0.05:
                packed = packed[:5] + b"\xff" + packed[6:]
            return chunk(b"zTXt", key + b"\0\0" + packed)
        if r.random() < 0.5:
            return chunk(b"tEXt", key + b"\0" + value)
        packed, flag = (zlib.compress(value), 1) if r.random() < 0.3 else (value, 0)
        return chunk(b"iTXt", key + bytes([0, flag, r.choice([0] * 9 + [1])]) + r.choice([b"", b"de", b"\xff"]) + b"\0\0" + packed)

    def one():
        match r.randrange(6):
            case 0 | 1:
                return chunk(b"eXIf", r.choice([exif(r), prefixed(r, exif(r))]))
            case 2:
                return text(b"Raw profile type " + r.choice([b"exif"] * 5 + [b"APP1"]), hexadecimal(prefixed(r, exif(r))))
            case 3 | 4:
                return text(r.choice([b"XML:com.adobe.xmp"] * 6 + [b"xmp"]), xmp(r))
            case _:
                return text(r.choice([b"exif", b"Comment", b""]), exif(r))

    before, after = [b"".join(one() for _ in range(r.choice([0, 0, 1, 2]))) for _ in range(2)]
    if r.random() < 0.1:
        control = struct.pack(">IIIIHHBB", image.width, image.height, 0, 0, 1, 10, 0, 0)
        frames = r.choice([1, 2])
        before += chunk(b"acTL", struct.pack(">II", frames, 0))
        if r.random() < 0.5:
            before += chunk(b"fcTL", struct.pack(">I", 0) + control)
            second = 1
        else:
            second = 0
        if frames + 1 - second > 1 or r.random() < 0.3:
            data = chunk(b"fcTL", struct.pack(">I", second) + control)
            data += chunk(b"fdAT", struct.pack(">I", second + 1) + zlib.compress(rows))
            after = r.choice([after + data, data + after])
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", image.width, image.height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + before + chunk(b"IDAT", zlib.compress(rows)) + after + chunk(b"IEND", b"")


def riff(name, data):
    return name + struct.pack("<I", len(data)) + data + bytes(len(data) & 1)


def encoded(r, image):
    """The chunks of an image that libwebp encodes."""
    file = io.BytesIO()
    image.save(file, "WEBP", lossless=r.random() < 0.6, exact=r.random() < 0.7, quality=r.choice([20, 80, 100]), method=0)
    file, at, chunks = file.getvalue(), 12, b""
    while at < len(file):
        size = struct.unpack("<I", file[at + 4 : at + 8])[0]
        end = at + 8 + size + (size & 1)
        if file[at : at + 4] in (b"ALPH", b"VP8 ", b"VP8L"):
            chunks += file[at:end]
        at = end
    return chunks


def u24(number):
    return struct.pack("<I", number)[:3]


def transparent(r):
    """An image with alpha, which is 0 in places."""
    width, height = r.randrange(1, 24), r.randrange(1, 24)
    if r.random() < 0.4:
        return Image.frombytes("RGB", (width, height), r.randbytes(3 * width * height))
    alpha = r.choice([b"\0\xff", b"\0", b"\0\x80\xff", bytes(range(256))])
    pixels = b"".join(r.randbytes(3) + bytes([r.choice(alpha)]) for _ in range(width * height))
    return Image.frombytes("RGBA", (width, height), pixels)


def file_of(flags, size, chunks):
    data = b"WEBP" + riff(b"VP8X", bytes([flags, 0, 0, 0]) + u24(size[0] - 1) + u24(size[1] - 1)) + chunks
    return b"RIFF" + struct.pack("<I", len(data)) + data


def webp(r):
    """An extended file with EXIF data and XMP, flagged or not."""
    image = picture(r, r.choice(["RGB", "RGBA"]))
    parts = [riff(b"EXIF", r.choice([exif(r), prefixed(r, exif(r)), b""])) for _ in range(r.choice([0, 1, 1, 2]))]
    parts += [riff(b"XMP ", xmp(r)) for _ in range(r.choice([0, 0, 1, 2]))]
    parts.append(encoded(r, image))
    if r.random() < 0.5:
        r.shuffle(parts)
    else:
        parts.reverse()
    flags = r.choice([0x0C, 0x0C, 8, 4, 0]) | (0x10 if image.mode == "RGBA" and r.random() < 0.9 else 0)
    return file_of(flags, image.size, b"".join(parts))


def animation(r):
    """An animated WebP, whose frames may be blended, disposed of, transparent, and smaller than the canvas."""
    frames = [transparent(r) for _ in range(r.choice([1, 2, 2, 3]))]
    places = [(2 * r.choice([0, 0, r.randrange(6)]), 2 * r.choice([0, 0, r.randrange(6)])) for _ in frames]
    sides = [max(place[i] + frame.size[i] for frame, place in zip(frames, places)) for i in range(2)]
    canvas = [side + r.choice([0, 0, r.randrange(5)]) for side in sides]
    chunks = riff(b"ANIM", r.randbytes(4) + b"\0\0")
    for frame, (x, y) in zip(frames, places):
        head = u24(x // 2) + u24(y // 2) + u24(frame.width - 1) + u24(frame.height - 1) + u24(r.choice([0, 100]))
        chunks += riff(b"ANMF", head + bytes([r.randrange(4)]) + encoded(r, frame))
    flags = 2 | r.choice([0, 0x10])
    if r.random() < 0.3:
        flags, chunks = flags | 8, chunks + riff(b"EXIF", exif(r))
    return file_of(flags, canvas, chunks)


KINDS = [jpeg, jpeg, png, png, webp, animation]


TURNS = [m.value for m in (Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.ROTATE_180, Image.Transpose.FLIP_TOP_BOTTOM)]
TURNS += [m.value for m in (Image.Transpose.TRANSPOSE, Image.Transpose.ROTATE_270, Image.Transpose.TRANSVERSE)]
TURNS += [Image.Transpose.ROTATE_90.value]


def of_pillow(data):
    """Pillow's image, upright, or None if Pillow does not read it. Metadata that Pillow fails at turn nothing."""
    try:
        image = Image.open(io.BytesIO(data))
        image.load()
    except Exception:
        return None
    try:
        orientation = image.getexif().get(0x112, 1)
    except Exception:
        orientation = 1
    turn = dict(zip(range(2, 9), TURNS)).get(orientation)
    upright = image.convert("RGB") if turn is None else image.convert("RGB").transpose(turn)
    try:
        same = ImageOps.exif_transpose(image).convert("RGB")
    except Exception:
        # It fails at writing other entries down again.
        return upright
    assert (same.size, same.tobytes()) == (upright.size, upright.tobytes())
    return same


def cases(count, seed):
    """Images, each with its kind and what Pillow makes of it."""
    warnings.simplefilter("ignore")
    made = 0
    while made < count:
        r = random.Random(f"{seed} {made}")
        kind = r.choice(KINDS)
        data = kind(r)
        image = of_pillow(data)
        while image is None:
            data = kind(r)
            image = of_pillow(data)
        made += 1
        yield kind.__name__, data, image


def main():
    path, count, *seed = sys.argv[1:]
    with open(path, "wb") as file:
        for kind, data, image in cases(int(count), seed[0] if seed else "0"):
            file.write(struct.pack("<I", len(data)) + data)
            print(kind, hashlib.sha256(b"%d %d " % image.size + image.tobytes()).hexdigest())


if __name__ == "__main__":
    main()
