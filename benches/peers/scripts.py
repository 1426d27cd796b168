"""Runs public training scripts with torch's DataLoader and with warpfeed's in its place, and compares what they get.

    python scripts.py CHECKOUTS PHOTOS OUT.json [--only NAME,NAME] [--parts alone,ranks,resumed,loading]

CHECKOUTS has clones of the repositories of `SCRIPTS`, by the last part of their names. The table says their commits. PHOTOS is
a folder of class folders. The interpreter is that of `warpfeed-python/run clients`, with pycocotools and
jsonargparse[signatures]. For `loading` it needs a wheel of a release: the one that `run clients` leaves is not optimized.

A script runs with few images and a small model, as it is and with `swap`, which changes at most five lines. `adapt` changes
both forms: it takes smaller models, and what libraries have removed since. For the comparison `steady` replaces random
transforms, and others are seeded in both forms by the sample's index. Compared are the bytes of all batches and the losses:
alone, with two ranks and 41 images of validation, and after a resume if the script has one. Loading is timed without training,
with the script's own transforms: the shorter of two epochs of all photographs. What OUT.json has of other scripts and parts
stays in it and in the table.
"""

import argparse
import collections
import dataclasses
import datetime
import hashlib
import importlib.machinery
import importlib.metadata
import json
import os
import pathlib
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TRAIN, VALIDATION, WORKERS = 48, 41, 2
LIMIT_S = 300
PACKAGES = ["warpfeed", "torch", "torchvision", "timm", "transformers", "datasets", "lightning", "accelerate"]

IMPORT = (r"\A((?:(?!import |from (?!__future__)).*\n)*)", r"\1from warpfeed.torch import DataLoader\n")
TORCHS = (r"torch\.utils\.data\.DataLoader\(", "DataLoader(")
FROM = (
    r"from torch\.utils\.data import DataLoader, (.*)",
    r"from torch.utils.data import \1\nfrom warpfeed.torch import DataLoader",
)
PREPARE = (r"= accelerator\.prepare\(", "= prepare(accelerator,")
PROCESSES = (r"\bnum_workers=", "persistent_workers=True, python_workers=")
CROP = (r"RandomResizedCrop\((?:size=)?([^,()]+)(?:\([^()]*\)|[^()])*\)", r"Resize((\1, \1))")
SIZES = [
    (r"RandomResizedCrop\((\w*size)\b[^()]*(?:\([^()]*\))?\)", r"Resize(\1)"),
    (r"RandomHorizontalFlip\(\)", "RandomHorizontalFlip(0.0)"),
]
MIRROR = (r"RandomHorizontalFlip\([^()]*\)", "RandomHorizontalFlip(0.0)")


@dataclasses.dataclass
class Script:
    name: str
    repository: str
    file: str
    arguments: str
    """With {epochs}, and the folders {images}, {coco}, {pets} and {model} of `make_data`."""
    swap: list = dataclasses.field(default_factory=lambda: [IMPORT, TORCHS])
    adapt: list = dataclasses.field(default_factory=list)
    steady: list = dataclasses.field(default_factory=lambda: [CROP, MIRROR])
    ranks: str | None = ""
    """Arguments for two ranks; None: the script knows none."""
    resume: str | None = None
    """Arguments that go on after the first epoch."""
    alone: str = ""
    """Arguments without ranks."""
    has_rank: bool = False
    """Whether a launcher must have started it, also alone."""


def columns(name):
    """Arguments of a loader of Hugging Face's columns."""
    return f'transform={name}, columns={{"pixel_values": "image", "labels": "label"}}'


HUGGING_FACE = [
    (r"\n *(?:check_min_version|send_example_telemetry)\(.*", ""),
    (r", send_example_telemetry", ""),
    (r"default=\"cifar10\"", "default=None"),
    (r"\n *cache_dir=args\.cache_dir,", ""),
    (r"\n *(?:task|finetuning_task)=\"image-classification\",", ""),
    (r"(features|example)\[\"labels\"\]", r'\1["label"]'),
    (r" not training_args\.overwrite_output_dir", " True"),
    (r"tokenizer=", "processing_class="),
    (r"import Repository, ", "import "),
    (r"training_args\.local_rank", "0"),
    (r"\n *from_tf=.*", ""),
]
TRAINER = (
    "--model_name_or_path {model} --train_dir {images}/train --validation_dir {images}/val --output_dir out --do_train --do_eval"
    " --remove_unused_columns false --per_device_train_batch_size 8 --use_cpu true --seed 1 --report_to none"
    " --logging_strategy no --save_strategy epoch --num_train_epochs {epochs} --dataloader_num_workers 2"
    " --ignore_mismatched_sizes true"
)
SCRIPTS = [
    Script(
        "imagenet", "pytorch/examples", "imagenet/main.py",
        "{images} -a squeezenet1_1 --epochs {epochs} -b 8 -j 2 --seed 1 --no-accel",
        ranks="--world-size 2 --dist-url env:// --dist-backend gloo", resume="--resume checkpoint.pth.tar",
    ),
    Script(
        "dcgan", "pytorch/examples", "dcgan/main.py",
        "--dataset folder --dataroot {images}/train --batchSize 8 --workers 2 --niter {epochs} --ngf 8 --ndf 8 --manualSeed 1",
        ranks=None,
    ),
    Script(
        "classification", "pytorch/vision", "references/classification/train.py",
        "--data-path {images} --model mobilenet_v3_small --device cpu -b 8 -j 2 --epochs {epochs} --output-dir .",
        swap=[
            IMPORT, TORCHS, (r"(?<=collate_fn=collate_fn,)", " transform=dataset.transform.transforms,"),
            (r"(?<=dataset_test,)(?= batch_size)", " transform=dataset_test.transform.transforms,"),
        ],
        resume="--resume checkpoint.pth",
    ),
    Script(
        "detection", "pytorch/vision", "references/detection/train.py",
        "--data-path {coco} --dataset coco --model ssdlite320_mobilenet_v3_large --device cpu -b 8 -j 2 --epochs {epochs}"
        " --lr 0.002 --output-dir .",
        swap=[IMPORT, TORCHS], steady=[], resume="--resume checkpoint.pth",
    ),
    Script(
        "segmentation", "pytorch/vision", "references/segmentation/train.py",
        "--data-path {coco} --dataset coco --model lraspp_mobilenet_v3_large --device cpu -b 8 -j 2 --epochs {epochs}"
        " --output-dir .",
        adapt=[(r"base_size=520", "base_size=104"), (r"crop_size=480", "crop_size=96")],
        swap=[IMPORT, TORCHS], steady=[], resume="--resume checkpoint.pth",
    ),
    Script(
        "timm", "huggingface/pytorch-image-models", "train.py",
        "--data-dir {images} --train-split train --val-split val --model test_resnet --num-classes 10 --epochs {epochs} -b 8"
        " -j 2 --device cpu --warmup-epochs 0 --output out --experiment one --no-prefetcher",
        swap=[(r"(from timm\.data import .*?)create_loader, ", r"from warpfeed.timm import create_loader\n\1")],
        steady=[(r"no_aug=args\.no_aug", "no_aug=True")], resume="--resume out/one/last.pth.tar",
    ),
    Script(
        "HF Trainer", "huggingface/transformers", "examples/pytorch/image-classification/run_image_classification.py", TRAINER,
        adapt=HUGGING_FACE, steady=SIZES, resume="--resume_from_checkpoint out/checkpoint-6", ranks="--ddp_backend gloo",
        swap=[
            (IMPORT[0], r"\1from warpfeed.transformers import LoaderArguments, WarpfeedTrainer\n"),
            (r"= Trainer\(", "= WarpfeedTrainer("),
            (r"dataset\[\"(\w+)\"\]\.set_transform\((\w+?)_transforms\)",
             r'dataset["\1"] = LoaderArguments(dataset["\1"], ' + columns(r"_\2_transforms") + ")"),
        ],
    ),
    Script(
        "HF no_trainer", "huggingface/transformers",
        "examples/pytorch/image-classification/run_image_classification_no_trainer.py",
        "--model_name_or_path {model} --train_dir {images}/train --validation_dir {images}/val --seed 1"
        " --num_train_epochs {epochs} --output_dir . --checkpointing_steps epoch --ignore_mismatched_sizes",
        adapt=HUGGING_FACE, steady=SIZES, resume="--resume_from_checkpoint epoch_0",
        swap=[
            (r"from torch\.utils\.data import DataLoader",
             "from warpfeed.accelerate import prepare\nfrom warpfeed.torch import DataLoader"),
            PREPARE,
            (r"(?<=DataLoader\()(\s*)train_dataset, (.*) collate_fn=collate_fn,",
             rf'\1dataset["train"], \2 {columns("train_transforms")},'),
            (r"(?<=DataLoader\()eval_dataset, collate_fn=collate_fn", rf'dataset["validation"], {columns("val_transforms")}'),
        ],
    ),
    Script(
        "Lightning", "Lightning-AI/pytorch-lightning", "examples/pytorch/domain_templates/imagenet.py",
        "fit --model.data_path {images} --model.arch squeezenet1_1 --model.lr 0.001 --model.batch_size 8 --model.workers 2"
        " --trainer.max_epochs {epochs} --trainer.accelerator cpu --trainer.logger false --trainer.num_sanity_val_steps 0"
        " --seed_everything 1",
        ranks="--trainer.devices 2 --trainer.strategy ddp", alone="--trainer.devices 1 --trainer.strategy auto",
    ),
    Script(
        "accelerate", "huggingface/accelerate", "examples/cv_example.py", "--data_dir {pets} --cpu",
        adapt=[
            (r'"resnet50d", pretrained=True', '"test_resnet"'),
            (r'"batch_size": 64, "image_size": 224', '"batch_size": 8, "image_size": 64'),
            (r'"num_epochs": 3', '"num_epochs": {epochs}'), (r"num_workers=4", "num_workers=2"),
        ],
        swap=[(FROM[0], FROM[1] + r"\nfrom warpfeed.accelerate import prepare"), PREPARE],
        steady=[(r"RandomResizedCrop\(image_size[^)]*\)", "Resize(image_size")],
    ),
    Script(
        "DINO eval_knn", "facebookresearch/dino", "eval_knn.py",
        "--data_path {images} --arch resnet18 --batch_size_per_gpu 8 --num_workers 2 --nb_knn 5 --use_cuda false",
        adapt=[(r"shape\[0\], 100", "shape[0], 1")], has_rank=True,
    ),
    Script(
        "DINO main_dino", "facebookresearch/dino", "main_dino.py",
        "--data_path {images}/train --arch vit_tiny --patch_size 32 --out_dim 64 --batch_size_per_gpu 8 --num_workers 2"
        " --epochs {epochs} --warmup_epochs 0 --output_dir . --use_fp16 false",
        adapt=[(r"torch\.hub\.list\([^)]*\)", "[]")],
        swap=[IMPORT, TORCHS, PROCESSES], steady=[], has_rank=True, resume="",
    ),
    Script(
        "MAE", "facebookresearch/mae", "main_pretrain.py",
        "--data_path {images} --model mae_vit_base_patch16 --batch_size 8 --num_workers 2 --epochs {epochs} --device cpu"
        " --warmup_epochs 0 --output_dir . --log_dir .",
        adapt=[
            (r"assert timm\.__version__.*", ""), (r"from torch\._six import inf", "from math import inf"),
            (r"qk_scale=None, ", ""), (r"np\.float\b", "float"), (r"add_weight_decay", "param_groups_weight_decay"),
            (r"embed_dim=768, depth=12, num_heads=12", "embed_dim=96, depth=1, num_heads=3"),
        ],
        resume="--resume checkpoint-0.pth --start_epoch 1", has_rank=True,
    ),
    Script(
        "DeiT", "facebookresearch/deit", "main.py",
        "--data-path {images} --data-set IMNET --model test_vit --input-size 160 --batch-size 8 --num_workers 2"
        " --epochs {epochs} --device cpu --warmup-epochs 0 --output_dir . --dist-eval --ThreeAugment",
        adapt=[(r"_pil_interp, ", ""), (r"// 256 \* 256", "// 8 * 8")],
        steady=[
            (r"= new_data_aug_generator\(args\)", "= data_loader_train.dataset.transform"),
            (r"is_training=True", "is_training=False"),
        ],
        resume="--resume checkpoint.pth", has_rank=True,
    ),
    Script(
        "U-Net", "milesial/Pytorch-UNet", "train.py", "--epochs {epochs} --batch-size 8 --scale 0.08 --validation 45",
        adapt=[(r"os\.cpu_count\(\)", "2")], swap=[FROM], ranks=None,
    ),
    Script(
        "mnist", "pytorch/examples", "mnist/main.py",
        "--batch-size 8 --test-batch-size 8 --epochs {epochs} --no-accel", adapt=[(r"'\.\./data'", "'data'")], ranks=None,
    ),
    Script(
        "pytorch-cifar", "kuangliu/pytorch-cifar", "main.py", "",
        adapt=[
            (r"_, term_width = .*", "term_width = 80"), (r"SimpleDLA\(\)", "LeNet()"),
            (r"batch_size=1\d\d", "batch_size=8"), (r"start_epoch\+200", "start_epoch+{epochs}"),
        ],
        steady=[(r"RandomCrop\(32, padding=4\)", "Pad(0)"), MIRROR], ranks=None,
    ),
    Script(
        "SupContrast", "HobbitLong/SupContrast", "main_supcon.py",
        "--dataset path --data_folder {images}/train --mean (0.5,0.5,0.5) --std (0.2,0.2,0.2) --model resnet18 --batch_size 8"
        " --num_workers 2 --epochs {epochs}",
        steady=[], ranks=None,
    ),
]  # fmt: skip


def make_data(photos, folder, count):
    """Folders of the forms that scripts take. `count`: the images of training."""
    import annotations
    from PIL import Image

    files = [[path for path in sorted(one.iterdir())] for one in sorted(photos.iterdir())]
    turns = [path for group in zip(*files) for path in group]
    for part, chosen in ("train", turns[:count]), ("val", turns[-VALIDATION:]):
        for number, path in enumerate(chosen):
            named = folder / "images" / part / path.parent.name
            named.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, named / f"{number}.jpg")
        (folder / part).mkdir()
        annotations.annotate(chosen, 1, folder / part)
        (folder / "coco" / "annotations").mkdir(parents=True, exist_ok=True)
        (folder / part / "annotations.json").rename(folder / "coco" / "annotations" / f"instances_{part}2017.json")
        (folder / part / "images").rename(folder / "coco" / f"{part}2017")
    for name in "pets", "imgs", "masks":
        (folder / name).mkdir()
    for number, path in enumerate(turns[: count + VALIDATION]):
        shutil.copyfile(path, folder / "pets" / f"{path.parent.name}_{number}.jpg")
        with Image.open(path) as image:
            image.convert("RGB").resize((500, 400)).save(folder / "imgs" / f"{number}.jpg")
            image.convert("L").resize((500, 400)).point(lambda value: value // 128).save(
                folder / "masks" / f"{number}.png"
            )
    make_arrays(turns, count, folder)
    make_model(folder / "model")


def make_arrays(files, count, folder):
    """MNIST and CIFAR10 of the files, as their web sites have them."""
    import numpy
    from PIL import Image

    mnist, cifar = folder / "MNIST" / "raw", folder / "cifar-10-batches-py"
    mnist.mkdir(parents=True)
    cifar.mkdir()
    names = sorted({path.parent.name for path in files})
    parts = {"train": files[:count], "t10k": files[-VALIDATION:]}
    for part, chosen in parts.items():
        labels = numpy.array([names.index(path.parent.name) % 10 for path in chosen], "uint8")
        gray = numpy.stack([numpy.asarray(Image.open(path).convert("L").resize((28, 28))) for path in chosen])
        for kind, array in ("images-idx3", gray), ("labels-idx1", labels):
            head = numpy.array([0x800 + array.ndim, *array.shape], ">u4").tobytes()
            (mnist / f"{part}-{kind}-ubyte").write_bytes(head + array.tobytes())
        colors = numpy.stack([numpy.asarray(Image.open(path).convert("RGB").resize((32, 32))) for path in chosen])
        data = colors.transpose(0, 3, 1, 2).reshape(len(chosen), -1)
        batches = ["test_batch"] if part == "t10k" else [f"data_batch_{number}" for number in range(1, 6)]
        for name, rows, own in zip(batches, numpy.array_split(data, len(batches)), numpy.array_split(labels, len(batches))):
            (cifar / name).write_bytes(pickle.dumps({"data": rows, "labels": own.tolist()}))
    (cifar / "batches.meta").write_bytes(pickle.dumps({"label_names": names[:10]}))


def make_model(folder):
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    ViTForImageClassification(ViTConfig(image_size=64, **sizes)).save_pretrained(folder)
    ViTImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)


class Nothing:
    """Stands for a module that logs or evaluates, and for all in it."""

    __spec__ = importlib.machinery.ModuleSpec("nothing", None)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args, **options):
        return self

    def compute(self, **options):
        return {}


def record(log, is_swapped, is_steady, is_timed):
    """Called in the script: notes batches and losses in a file, and has the script run on a CPU."""
    import atexit
    import random

    import numpy
    import torch
    import torch._dynamo  # notes what functions are torch's, before some are replaced
    import torchvision
    from torch.utils import data
    from torch.utils._pytree import tree_leaves

    from warpfeed import _loader, _python

    for seed in random.seed, numpy.random.seed, torch.manual_seed:
        seed(1)
    torch.Tensor.cuda = lambda self, *args, **options: self
    torch.cuda.set_device = torch.cuda.synchronize = lambda *args: None
    torch.nn.SyncBatchNorm.convert_sync_batchnorm = lambda module, *args: module
    begin_group, load, backward = torch.distributed.init_process_group, torch.load, torch.Tensor.backward
    torch.distributed.init_process_group = lambda *args, **options: begin_group(
        **{**options, "backend": "gloo", "device_id": None}
    )
    torch.load = lambda *args, **options: load(*args, **{**options, "weights_only": False})

    class OnCpu(torch.nn.parallel.DistributedDataParallel):
        def __init__(self, module, device_ids=None, output_device=None, **options):
            super().__init__(module, **options)

    torch.nn.parallel.DistributedDataParallel = OnCpu
    text = pathlib.Path(sys.argv[0]).read_text()
    for name in "wandb", "evaluate", "torch.utils.tensorboard", "tensorboard_logger":
        if re.search(rf"^(import|from) {name}\b", text, re.M) and not pathlib.Path(f"{name}.py").exists():
            sys.modules[name] = Nothing()
    # Its files are made for this run.
    torchvision.datasets.cifar.check_integrity = lambda *args: True
    seen = {"losses": [], "epochs": []}
    log = f"{log}-{os.environ.get('RANK', 0)}"
    process = os.getpid()

    def save():
        if os.getpid() == process:
            pathlib.Path(log).write_text(json.dumps(seen))

    atexit.register(save)

    def noted(loss, *args, **options):
        seen["losses"].append(loss.item())
        return backward(loss, *args, **options)

    torch.Tensor.backward = noted

    def fetch(fetcher, indices):
        with _python._generators():
            if not fetcher.auto_collation:
                _python.seed(indices)
                return fetcher.collate_fn(fetcher.dataset[indices])
            together = getattr(fetcher.dataset, "__getitems__", None)
            _python.seed(indices[0])
            if together and type(fetcher.dataset) is not data.Subset:
                samples = together(indices)
            else:
                samples = []
                for index in indices:
                    _python.seed(index)
                    samples.append(fetcher.dataset[index])
            _python.seed(indices[0])
            return fetcher.collate_fn(samples)

    if is_steady and not is_swapped:
        data._utils.fetch._MapDatasetFetcher.fetch = fetch
    elif is_steady:
        _python.Work._seed = lambda self, job, place, what="": self.seeded and _python.seed(job.indices[place])

    def digest(batch):
        total = hashlib.sha256()
        for leaf in tree_leaves(batch):
            tensor = leaf.detach().cpu().contiguous() if isinstance(leaf, torch.Tensor) else None
            total.update(repr(leaf).encode() if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            total.update(b"" if tensor is None else tensor.view(-1).view(torch.uint8).numpy().tobytes())
        return total.hexdigest()[:16]

    def iterate(plain):
        def watched(self):
            if is_timed:
                seen["seconds"] = []
                for _ in range(2):
                    begin = time.perf_counter()
                    seen["batches"] = sum(1 for _ in plain(self))
                    seen["seconds"].append(time.perf_counter() - begin)
                raise SystemExit
            digests = []
            seen["epochs"].append(digests)
            for batch in plain(self):
                digests.append(digest(batch))
                yield batch

        return watched

    kind = _loader.Loader if is_swapped else data.DataLoader
    kind.__iter__ = iterate(kind.__iter__)


def changed(text, changes, must=False):
    for pattern, replacement in changes:
        after = re.sub(pattern, replacement, text)
        if must and after == text:
            raise SystemExit(f"nothing to replace: {pattern}")
        text = after
    return text


def write(script, checkouts, folder, is_swapped, is_steady, epochs, log, is_timed):
    """A copy of the script in a folder. Returns its path and the number of lines that the swap changes."""
    main = checkouts / script.repository.split("/")[-1] / script.file
    shutil.copytree(main.parent, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git", "*.jpg"))
    adapt = [(pattern, new.replace("{epochs}", str(epochs))) for pattern, new in script.adapt]
    adapt += [(r"device=(['\"])cuda\1", "device='cpu'")]
    for path in folder.rglob("*.py"):
        path.write_text(changed(path.read_text(), adapt + (script.steady if is_steady else [])))
    main = folder / main.name
    before = main.read_text()
    after = changed(before, script.swap, True) if is_swapped else before
    lines = collections.Counter(after.splitlines()) - collections.Counter(before.splitlines())
    recorded = f"import sys; sys.path.insert(0, {str(HERE)!r}); import scripts as _scripts; sys.path.pop(0); "
    recorded += f"_scripts.record({log!r}, {is_swapped}, {is_steady}, {is_timed})\n"
    main.write_text(re.sub(IMPORT[0], lambda found: found[1] + recorded, after))
    return main, lines.total()


def run(script, args, data, is_swapped, is_steady=True, is_timed=False, ranks=1, resume=False):
    """Runs a form of the script. Returns what each rank noted, and the number of changed lines."""
    with tempfile.TemporaryDirectory(prefix="warpfeed-scripts-") as name:
        folder = pathlib.Path(name, "script")
        for epochs in (1, 2) if resume else (2,):
            log = f"{name}/log{epochs}"
            main, lines = write(script, args.checkouts, folder, is_swapped, is_steady, epochs, log, is_timed)
            (folder / "data").mkdir(exist_ok=True)
            for part in "imgs", "masks", "MNIST", "cifar-10-batches-py":
                own = folder / "data" / part
                if own.is_dir() and not own.is_symlink():
                    shutil.rmtree(own)
                if not own.exists():
                    own.symlink_to(data / part)
            parts = {part: data / part for part in ("images", "coco", "pets", "model")}
            own = [
                script.arguments,
                script.ranks if ranks > 1 else script.alone,
                script.resume if resume and epochs == 2 else "",
            ]
            command = [sys.executable]
            if ranks > 1 or script.has_rank:
                command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
            command += [str(main), *" ".join(own).format(epochs=epochs, **parts).split()]
            offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": f"{name}/cache", "ACCELERATE_USE_CPU": "true"}
            environment = {**os.environ, **offline, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "USER": "one"}
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                timeout=LIMIT_S,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            logs = [pathlib.Path(f"{log}-{rank}") for rank in range(ranks)]
            if done.returncode or not all(path.exists() for path in logs):
                # Behind it come lines of the launcher.
                own = done.stdout.split("torch/distributed/elastic")[0]
                raise RuntimeError(own[-args.tail :])
        return [json.loads(path.read_text()) for path in logs], lines


def difference(mine, theirs):
    """What differs between two runs; "" if nothing does."""
    for rank, (ours, torchs) in enumerate(zip(mine, theirs)):
        sizes = [[len(epoch) for epoch in one["epochs"]] for one in (ours, torchs)]
        if sizes[0] != sizes[1]:
            return f"batches of rank {rank}: {sizes[0]} for {sizes[1]}"
        apart = sum(a != b for one, other in zip(ours["epochs"], torchs["epochs"]) for a, b in zip(one, other))
        if apart:
            return f"bytes of {apart} of {sum(sizes[0])} batches of rank {rank}, {losses(ours, torchs)}"
        if ours["losses"] != torchs["losses"]:
            return losses(ours, torchs)
    return ""


def losses(ours, torchs):
    pairs = list(zip(ours["losses"], torchs["losses"]))
    return f"losses by up to {max((abs(a - b) for a, b in pairs), default=0):.2g}"


def compare(script, args, data, photos, row):
    """Fills a row of the table."""
    checkout = args.checkouts / script.repository.split("/")[-1]
    row["commit"] = subprocess.check_output(["git", "-C", str(checkout), "rev-parse", "HEAD"], text=True).strip()
    kinds = {"alone": {}}
    if script.ranks is not None:
        kinds["ranks"] = {"ranks": 2}
    if script.resume is not None:
        kinds["resumed"] = {"resume": True}
    for kind in [kind for kind in kinds if kind in args.parts]:
        try:
            theirs, _ = run(script, args, data, False, **kinds[kind])
            ours, row["lines"] = run(script, args, data, True, **kinds[kind])
            row[kind] = difference(ours, theirs) or "equal"
            row[f"{kind}, batches"] = [[len(epoch) for epoch in one["epochs"]] for one in ours]
            row[f"{kind}, losses"] = [len(one["losses"]) for one in ours]
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            row[kind] = "failed"
            print(error, file=sys.stderr)
        print(f"{script.name}, {kind}: {row[kind]}", file=sys.stderr)
    for form in ("torch", "warpfeed") if "loading" in args.parts else ():
        try:
            (noted,), _ = run(script, args, photos, form == "warpfeed", is_steady=False, is_timed=True)
            row[form] = noted["seconds"]
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(error, file=sys.stderr)
        print(f"{script.name}, {form}: {row.get(form)}", file=sys.stderr)


def table(rows):
    lines = ["| script | lines | alone | two ranks | resumed | loading with torch, s | with warpfeed, s |"]
    lines += ["| --- | ---: | --- | --- | --- | ---: | ---: |"]
    for row in rows.values():
        cells = [f"{row['repository']}, {row['file']} ({row['commit'][:8]})", str(row.get("lines", ""))]
        cells += [row.get(kind, "-") for kind in ("alone", "ranks", "resumed")]
        cells += [f"{min(row[form]):.2f}" if form in row else "" for form in ("torch", "warpfeed")]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=pathlib.Path)
    parser.add_argument("photos", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", help="names of scripts, with commas between them")
    parser.add_argument("--parts", default="alone,ranks,resumed,loading")
    parser.add_argument(
        "--tail", type=int, default=1500, help="the characters of a failed script's output that are shown"
    )
    args = parser.parse_args()
    args.checkouts, args.parts = args.checkouts.resolve(), args.parts.split(",")
    rows = json.loads(args.out.read_text())["rows"] if args.out.exists() else {}
    about = {package: importlib.metadata.version(package) for package in PACKAGES}
    about |= {
        "python": sys.version.split()[0],
        "cores": len(os.sched_getaffinity(0)),
        "date": datetime.date.today().isoformat(),
    }
    with tempfile.TemporaryDirectory(prefix="warpfeed-scripts-") as name:
        small, large = pathlib.Path(name, "small"), pathlib.Path(name, "large")
        make_data(args.photos, small, TRAIN)
        if "loading" in args.parts:
            make_data(args.photos, large, sum(1 for _ in args.photos.glob("*/*")) - VALIDATION)
        for script in SCRIPTS:
            if args.only and script.name not in args.only.split(","):
                continue
            row = rows.setdefault(script.name, {"repository": script.repository, "file": script.file})
            compare(script, args, small, large, row)
            row["load_average_1min"] = os.getloadavg()[0]
            args.out.write_text(json.dumps({"about": about, "rows": rows}, indent=1) + "\n")
    print("\n".join(table({script.name: rows[script.name] for script in SCRIPTS if script.name in rows})))
    print(", ".join(f"{key} {value}" for key, value in about.items()))


if __name__ == "__main__":
    main()
