"""Lightning, Hugging Face's Trainer, accelerate and timm: killed in the middle of an epoch, and as if nothing had happened."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from warpfeed import transforms as t  # noqa: E402
from warpfeed.torch import DataLoader  # noqa: E402

SMALL = [t.RandomResizedCrop(32), t.RandomHorizontalFlip(0.5), t.Normalize((0.5,) * 3, (0.25,) * 3)]
Seen = list[tuple[list[int], float]]


def loader(photos: Path, **options: Any) -> DataLoader:
    return DataLoader(photos, 4, **{"shuffle": True, "seed": 4, "transform": SMALL, "num_workers": 2, **options})


def digest(images: torch.Tensor, labels: torch.Tensor) -> tuple[list[int], float]:
    return labels.tolist(), images.double().sum().item()


@pytest.mark.parametrize("seed", [5, None])
def test_lightning_resumes_in_the_middle_of_an_epoch(photos: Path, tmp_path: Path, seed: int | None) -> None:
    lightning = pytest.importorskip("lightning")
    from warpfeed.lightning import DataModule

    class Model(lightning.LightningModule):
        def __init__(self, seen: Seen) -> None:
            super().__init__()
            self.seen, self.net = seen, nn.Linear(3072, 4)

        def training_step(self, batch: Any, _: int) -> Any:
            self.seen.append(digest(*batch))
            return nn.functional.cross_entropy(self.net(batch[0].flatten(1)), batch[1])

        def validation_step(self, batch: Any, _: int) -> None:
            assert batch[0].shape[1:] == (3, 32, 32)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    class Stop(lightning.Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            if trainer.global_step == 16:
                raise RuntimeError("killed")

    def fit(seen: Seen, *callbacks: Any, **options: Any) -> None:
        lightning.seed_everything(1 if "ckpt_path" not in options else 2)
        data = DataModule(
            {"dataset": photos, "seed": seed}, {"dataset": photos}, batch_size=4, transform=SMALL, num_workers=2
        )
        trainer = lightning.Trainer(
            max_epochs=3, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=tmp_path, callbacks=list(callbacks), enable_checkpointing=bool(callbacks),
        )  # fmt: skip
        trainer.fit(Model(seen), data, **options)

    whole: Seen = []
    fit(whole)
    assert len(whole) == 30
    saves = lightning.pytorch.callbacks.ModelCheckpoint(
        dirpath=tmp_path, every_n_train_steps=7, save_top_k=-1, filename="{step}"
    )
    first: Seen = []
    with pytest.raises(RuntimeError, match="killed"):
        fit(first, saves, Stop())
    rest: Seen = []
    (checkpoint,) = tmp_path.glob("*step=14*.ckpt")
    fit(rest, ckpt_path=checkpoint)
    assert first[:14] + rest == whole


def test_hf_trainer_resumes_in_the_middle_of_an_epoch(photos: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from warpfeed.transformers import LoaderArguments, WarpfeedTrainer

    class Net(nn.Module):
        def __init__(self, seen: Seen) -> None:
            super().__init__()
            self.seen, self.net = seen, nn.Linear(3072, 4)

        def forward(self, pixel_values: Any, labels: Any = None) -> dict[str, Any]:
            if self.training:
                self.seen.append(digest(pixel_values, labels))
            out = self.net(pixel_values.flatten(1))
            return {"loss": nn.functional.cross_entropy(out, labels), "logits": out}

    def train(seen: Seen, folder: Path, steps: int = -1, **options: Any) -> Any:
        args = transformers.TrainingArguments(
            str(folder), num_train_epochs=2, per_device_train_batch_size=4, report_to=[], use_cpu=True, save_steps=7,
            max_steps=steps, logging_strategy="no", disable_tqdm=True, dataloader_num_workers=2, seed=6,
        )  # fmt: skip
        data = LoaderArguments(photos, transform=SMALL)
        trainer = WarpfeedTrainer(model=Net(seen), args=args, train_dataset=data, eval_dataset=data)
        trainer.train(**options)
        return trainer

    whole: Seen = []
    trainer = train(whole, tmp_path / "whole")
    assert len(whole) == 20 and trainer.evaluate()["eval_loss"] > 0
    first: Seen = []
    train(first, tmp_path / "part", 9)
    rest: Seen = []
    train(rest, tmp_path / "part", resume_from_checkpoint=str(tmp_path / "part" / "checkpoint-7"))
    assert first[:7] + rest[-13:] == whole, "the batches before the checkpoint may be made and dropped"


def test_accelerate_steps_with_the_last_batch(photos: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    from warpfeed.accelerate import prepare

    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
    net = nn.Linear(3072, 4)
    net, optimizer, made = prepare(accelerator, net, torch.optim.SGD(net.parameters(), 0.1), loader(photos))
    steps = []
    for images, labels in made:
        with accelerator.accumulate(net):
            accelerator.backward(nn.functional.cross_entropy(net(images.flatten(1)), labels))
            optimizer.step()
            optimizer.zero_grad()
            steps.append(accelerator.sync_gradients)
    assert [i for i, step in enumerate(steps) if step] == [3, 7, 9]


def test_accelerate_skips_to_the_batch_where_it_was_killed(photos: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    from warpfeed.accelerate import prepare

    accelerator = accelerate.Accelerator(cpu=True)
    made = prepare(accelerator, loader(photos))
    whole = [digest(*batch) for _ in range(2) for batch in made]
    again = prepare(accelerator, loader(photos))
    again.set_epoch(1)
    rest = [digest(*batch) for batch in accelerator.skip_first_batches(again, 4)]
    assert whole[14:] == rest


def test_a_loop_over_timms_loader_is_killed_and_resumed(photos: Path) -> None:
    pytest.importorskip("timm")
    from warpfeed.timm import create_loader

    def made() -> DataLoader:
        return create_loader(photos, 32, 4, is_training=True, auto_augment="rand-m9-mstd0.5-inc1", seed=8)

    def train(made: DataLoader, first: int, seen: Seen, stop: int = 1000) -> tuple[int, Any]:
        for epoch in range(first, 2):
            made.sampler.set_epoch(epoch)
            for images, labels in made:
                seen.append(digest(images, labels))
                if len(seen) == stop:
                    return epoch, made.state_dict()
        return 2, None

    whole: Seen = []
    train(made(), 0, whole)
    assert len(whole) == 20
    first: Seen = []
    epoch, state = train(made(), 0, first, stop=13)
    resumed = made()
    resumed.load_state_dict(state)
    rest: Seen = []
    train(resumed, epoch, rest)
    assert first + rest == whole


RANKS = """
    import sys
    import torch.distributed as dist
    from accelerate import Accelerator
    from warpfeed.accelerate import prepare
    from warpfeed.torch import DataLoader
    accelerator = Accelerator(cpu=True)
    steps = [{"transform": "random_resized_crop", "size": [16, 16]}]
    loader = prepare(accelerator, DataLoader(sys.argv[1], 4, shuffle=True, transform=steps, distributed=True, num_workers=1))
    got = [round(images.double().sum().item(), 3) for images, _ in loader]
    all_of = [None] * dist.get_world_size()
    dist.all_gather_object(all_of, got)
    if accelerator.is_main_process:
        print([len(one) for one in all_of], len({value for one in all_of for value in one}))
    accelerator.end_training()
"""


def test_two_processes_read_different_samples(photos: Path, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    script = tmp_path / "ranks.py"
    script.write_text(textwrap.dedent(RANKS))
    environment = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29517",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
    }
    command = [sys.executable, str(script), str(photos)]
    processes = [
        subprocess.Popen(
            command, env={**environment, "RANK": rank, "LOCAL_RANK": rank}, stdout=subprocess.PIPE, text=True
        )
        for rank in "01"
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert outputs[0].strip().splitlines()[-1] == "[5, 5] 10"


def test_timms_arguments_make_the_loader(photos: Path) -> None:
    timm_data = pytest.importorskip("timm.data")
    from torchvision.datasets import ImageFolder

    from warpfeed.timm import create_loader, transform

    evaluation = {
        "input_size": (3, 48, 48),
        "interpolation": "bicubic",
        "crop_pct": 0.9,
        "mean": (0.5,) * 3,
        "std": (0.5,) * 3,
    }
    theirs = ImageFolder(str(photos), timm_data.create_transform(**evaluation))
    images, _ = next(iter(create_loader(ImageFolder(str(photos)), batch_size=6, **evaluation)))
    assert torch.equal(images, torch.stack([theirs[i][0] for i in range(6)]))
    for text in ("rand-m9-mstd0.5-inc1", "original-mstd0.5", "augmix-m5", "3a", None):
        steps = transform(
            64, is_training=True, auto_augment=text, re_prob=0.25, re_mode="pixel", interpolation="random"
        )
        assert [step["config"] for step in steps if step.get("transform") == "timm_augment"] == [text] * bool(text), (
            text
        )
        images, _ = next(iter(DataLoader(photos, 4, transform=steps)))
        assert images.shape == (4, 3, 64, 64)
    mixup = timm_data.Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=4)
    made = create_loader(photos, 32, 8, is_training=True, auto_augment="rand-m9", mixup=mixup, num_aug_repeats=2)
    images, targets = next(iter(made))
    assert images.shape == (8, 3, 32, 32) and targets.shape == (8, 4) and len(made) == 5


def test_configurations_of_timm_and_hugging_face(photos: Path) -> None:
    timm = pytest.importorskip("timm")
    transformers = pytest.importorskip("transformers")
    pillow = pytest.importorskip("PIL.Image")
    files = sorted(photos.glob("*/*.jpg"))[:4]
    config = timm.get_pretrained_cfg("resnet50.a1_in1k").to_dict()
    images, _ = next(iter(DataLoader([(file, 0) for file in files], 4, transform=config)))
    theirs = timm.data.create_transform(**timm.data.resolve_data_config(pretrained_cfg=config))
    assert torch.equal(images, torch.stack([theirs(pillow.open(file)) for file in files]))
    processor = (
        transformers.ViTImageProcessorPil()
        if hasattr(transformers, "ViTImageProcessorPil")
        else transformers.ViTImageProcessor()
    )
    images, _ = next(iter(DataLoader([(file, 0) for file in files], 4, transform=processor)))
    theirs = processor([pillow.open(file) for file in files], return_tensors="pt")["pixel_values"]
    assert torch.allclose(images, theirs, atol=1e-6)


def test_hugging_faces_data_sets_are_read_from_their_buffers(photos: Path) -> None:
    datasets = pytest.importorskip("datasets")
    files = sorted(photos.glob("*/*.jpg"))
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    rows = {
        "image": [{"bytes": file.read_bytes(), "path": None} for file in files],
        "label": [i % 2 for i in range(len(files))],
    }
    data = datasets.Dataset.from_dict(rows, features=features)
    expected = list(DataLoader([(file, i % 2) for i, file in enumerate(files)], 8, transform=SMALL, seed=1))
    for images, labels in DataLoader(data, 8, transform=SMALL, seed=1):
        own, of = expected.pop(0)
        assert torch.equal(images, own) and torch.equal(labels, of)
    part = data.shuffle(seed=2).select(range(7))
    got = [int(label) for _, labels in DataLoader(part, 3, transform=SMALL) for label in labels]
    assert got == part["label"][:] and DataLoader(part, 3, transform=SMALL).classes == ["a", "b"]
    by_path = datasets.Dataset.from_dict(
        {"image": [str(file) for file in files], "label": rows["label"]}, features=features
    )
    assert len(DataLoader(by_path, 8, transform=SMALL)) == 5


def test_jax(photos: Path) -> None:
    jax = pytest.importorskip("jax")
    from warpfeed.jax import DataLoader as JaxLoader

    images, labels = next(iter(JaxLoader(photos, 8, transform=SMALL)))
    theirs, _ = next(iter(DataLoader(photos, 8, transform=SMALL, seed=0)))
    assert isinstance(images, jax.Array) and images.shape == (8, 32, 32, 3) and labels.shape == (8,)
    assert (torch.from_numpy(__import__("numpy").array(images)).permute(0, 3, 1, 2) == theirs).all()


EXAMPLES = sorted(Path(__file__).parent.parent.glob("examples/*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_examples_run(photos: Path, tmp_path: Path, example: Path) -> None:
    needs = {"torch_loop": "torchvision"}.get(example.stem, example.stem.split("_")[0])
    pytest.importorskip(needs)
    command = [sys.executable, str(example), str(photos)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "loss" in done.stdout or "accuracy" in done.stdout
