"""Speed by the size of the images: warpfeed, DALI and torchvision on made images of 0.2 to 48 Mpx; what a draft saves.

`warpfeed synth` makes the images: blurry scenes with texture, shadows and sensor grain, above 0.2 Mpx with detail down
to three pixels, as lenses draw it. The table says how many bits a pixel they take.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

# megapixels, quality, chroma subsampling, number of images, batch size
SETS = [
    (0.2, 95, "4:2:0", 960, 32),
    (2, 93, "4:2:0", 192, 32),
    (12, 90, "4:2:0", 64, 16),
    (12, 95, "4:2:0", 64, 16),
    (12, 90, "4:2:2", 64, 16),
    (12, 95, "4:2:2", 64, 16),
    (48, 93, "4:2:0", 16, 8),
]
PIPELINES = ["train", "eval", "rand-augment"]
PEERS = ["dali", "torchvision", "torchvision-v2"]
EPOCHS = 4
# The sides for which a draft is decoded: those to which `eval` resizes, and so small that libjpeg makes one pixel of
# each block. What the latter takes is nearly all for Huffman codes, so no draft can be faster.
DRAFTS = {"whole": [], "draft": ["--draft", "256"], "codes": ["--draft", "1"]}
DRAFT_FROM_MPX = 2
DRAFT_GOAL = 1.7  # eval with a draft against without, 12 Mpx, first epoch


def made(warpfeed, folder, megapixels, quality, sampling, count):
    """Makes a set. Returns its bits a pixel, headers included."""
    command = [warpfeed, "synth", folder, "--count", str(count), "--megapixels", str(megapixels)]
    subprocess.run([*command, "--quality", str(quality), "--sampling", sampling], check=True, stdout=subprocess.DEVNULL)
    jpegs = [path.read_bytes() for path in pathlib.Path(folder).glob("*/*.jpg")]
    return 8 * sum(map(len, jpegs)) / sum(map(pixels, jpegs))


def pixels(jpeg):
    """The number of an image's pixels, from its frame header."""
    at = 2
    while jpeg[at + 1] not in (0xC0, 0xC1, 0xC2):
        at += 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
    return int.from_bytes(jpeg[at + 5 : at + 7], "big") * int.from_bytes(jpeg[at + 7 : at + 9], "big")


def cpu_seconds(warpfeed, folder, threads, batch_size, extra):
    """User CPU seconds of a first epoch of `eval`."""
    command = [warpfeed, "run", folder, "--preset", "eval", "--device", "cpu", "--epochs", "1", "--json", *extra]
    command += ["--threads", str(threads), "--batch-size", str(batch_size)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed")
    return usage.ru_utime


def measure(args, time_warpfeed, by_epochs, time_peer):
    """All sets. Returns one record a set: its form, images/s by pipeline and contender, and CPU seconds with drafts."""
    records = []
    for megapixels, quality, sampling, count, batch_size in SETS:
        if args.sizes and megapixels not in args.sizes:
            continue
        count = max(2, round(count * args.share))
        args.batch_size = min(batch_size, count)
        runs = {pipeline: {} for pipeline in PIPELINES}
        drafts = {name: [] for name in DRAFTS}
        with tempfile.TemporaryDirectory(prefix="warpfeed-sizes-") as folder:
            bits = made(args.warpfeed, folder, megapixels, quality, sampling, count)
            for number in range(1, args.rounds + 1):
                for pipeline in PIPELINES:
                    timed = list(by_epochs(args, time_warpfeed(args, folder, pipeline, 1, ["--epochs", str(EPOCHS)])))
                    timed += [(peer, time_peer(args, folder, peer, pipeline, 1)) for peer in args.peers]
                    for contender, run in timed:
                        runs[pipeline].setdefault(contender, []).append(run["images_per_s"])
                        said = f"{megapixels} Mpx, {quality}, {sampling}, round {number}: {pipeline}: {contender}"
                        print(f"{said}: {run['images_per_s']:.1f} images/s", file=sys.stderr)
                for name, extra in DRAFTS.items() if megapixels >= DRAFT_FROM_MPX else ():
                    seconds = cpu_seconds(args.warpfeed, folder, args.threads, args.batch_size, extra)
                    drafts[name].append(seconds / count)
        records.append(
            {
                "megapixels": megapixels,
                "quality": quality,
                "sampling": sampling,
                "images": count,
                "bits_a_pixel": bits,
                "images_per_s": {
                    pipeline: {contender: statistics.median(speeds) for contender, speeds in by.items()}
                    for pipeline, by in runs.items()
                },
                "eval_cpu_s_an_image": {name: statistics.median(times) for name, times in drafts.items() if times},
            }
        )
    return records


def tables(records, names, first):
    """The records as Markdown: speeds, then drafts."""
    lines = [
        "| images | bits a pixel | pipeline | warpfeed, first epoch | from the third on | peer | its images/s |"
        " times as fast |",
        "| --- | ---: | --- | ---: | ---: | --- | ---: | ---: |",
    ]
    form = "{megapixels:g} Mpx, quality {quality}, {sampling}".format
    for record in records:
        for pipeline, speeds in record["images_per_s"].items():
            own = f"{speeds[first]:.1f} | {speeds['warpfeed']:.1f}"
            for peer in (contender for contender in speeds if contender in names):
                times = f"{speeds[first] / speeds[peer]:.1f}, then {speeds['warpfeed'] / speeds[peer]:.1f}"
                cells = [form(**record), f"{record['bits_a_pixel']:.2f}", pipeline, own, names[peer]]
                lines.append(f"| {' | '.join(cells)} | {speeds[peer]:.1f} | {times} |")
            if not any(contender in names for contender in speeds):
                lines.append(f"| {form(**record)} | {record['bits_a_pixel']:.2f} | {pipeline} | {own} | | | |")
    lines += [
        "",
        "| `eval`, first epoch, CPU ms an image | whole | `--draft 256` | times as fast | Huffman codes alone | at most |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for record in records:
        if cpu := record["eval_cpu_s_an_image"]:
            whole, draft, codes = (1e3 * cpu[name] for name in DRAFTS)
            goal = ""
            if record["megapixels"] == 12:
                goal = f" (goal {DRAFT_GOAL}: {'reached' if whole >= DRAFT_GOAL * draft else 'missed'})"
            times = f"{whole / draft:.2f}{goal}"
            cells = [form(**record), f"{whole:.1f}", f"{draft:.1f}", times, f"{codes:.1f}", f"{whole / codes:.2f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return lines
