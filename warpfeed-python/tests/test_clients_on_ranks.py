"""accelerate, Lightning and Hugging Face's Trainer with two processes and 41 images: beside torch's loader in the same program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pil = pytest.importorskip("PIL.Image")
np = pytest.importorskip("numpy")

from ranks import on_two_ranks  # noqa: E402

SAMPLES = 41

COMMON = """
    import json, os, sys
    import torch, torch.distributed as dist
    from torch import nn
    from torch.utils import data as torch_data
    from torchvision import transforms as tv
    from torchvision.datasets import ImageFolder
    from warpfeed.torch import DataLoader
    numbered = ImageFolder(sys.argv[1], tv.Compose([tv.Resize((8, 8)), tv.ToTensor()]))
    numbered.samples = [(path, i) for i, (path, _) in enumerate(numbered.samples)]
    wrong = []
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("numbered")
    (folder / "class").mkdir()
    for i in range(SAMPLES):
        pixels = np.random.default_rng(i).integers(0, 256, (12, 16, 3), "uint8")
        pil.fromarray(pixels).save(folder / "class" / f"{i:02}.png")
    return folder


ACCELERATE = """
    import itertools
    from accelerate import Accelerator, DataLoaderConfiguration
    from warpfeed.accelerate import prepare
    for even, split, seedable in itertools.product((True, False), repeat=3):
        config = DataLoaderConfiguration(even_batches=even, split_batches=split, use_seedable_sampler=seedable)
        for options in (
            {}, {"drop_last": True}, {"shuffle": True}, {"shuffle": True, "drop_last": True},
            {"sampler": lambda: torch_data.SubsetRandomSampler(range(5, 38))},
        ):
            each = []
            for kind in (torch_data.DataLoader, DataLoader):
                torch.manual_seed(3)
                accelerator = Accelerator(cpu=True, dataloader_config=config, gradient_accumulation_steps=2)
                own = {name: value() if callable(value) else value for name, value in options.items()}
                loader = kind(numbered, 8, **own)
                loader = accelerator.prepare(loader) if kind is torch_data.DataLoader else prepare(accelerator, loader)
                assert isinstance(loader, torch_data.DataLoader)
                assert len(loader.dataset) == 41 and loader.total_batch_size
                epochs = [[len(loader), loader.total_batch_size, loader.total_dataset_length]]
                for _ in range(2):
                    for images, labels in loader:
                        # Uneven batches cannot be gathered by torch.
                        gathered = accelerator.gather_for_metrics(labels).tolist() if even else None
                        epochs.append([labels.tolist(), round(images.double().sum().item(), 3), gathered, loader.end_of_dataloader])
                    dist.barrier()
                torch.manual_seed(3)
                if kind is DataLoader:
                    loader.set_epoch(0)
                each.append(epochs)
            if each[0] != each[1]: wrong.append([even, split, seedable, str(options), accelerator.process_index, each])
    # With a seed the order is warpfeed's own, and each sample comes once in an epoch.
    for options in ({"shuffle": True, "seed": 4}, {"shuffle": True, "seed": 4, "distributed": True}):
        accelerator = Accelerator(cpu=True)
        loader = prepare(accelerator, DataLoader(numbered, 8, **options))
        epochs = []
        for _ in range(2):
            got = [accelerator.gather_for_metrics(labels).tolist() for _, labels in loader]
            epochs.append(sum(got, []))
            if sorted(epochs[-1]) != list(range(41)) and "distributed" not in options: wrong.append(got)
        if epochs[0] == epochs[1]: wrong.append("epochs alike")
        loader = prepare(accelerator, DataLoader(numbered, 8, **options))
        loader.set_epoch(1)
        skipped = accelerator.skip_first_batches(loader, 2)
        rest = sum([accelerator.gather_for_metrics(labels).tolist() for _, labels in skipped], [])
        if not rest or rest[:8] != epochs[1][32:40]: wrong.append(["skipped", options, rest, epochs[1]])
    try:
        accelerator.prepare(DataLoader(numbered, 8))
        wrong.append("silently prepared")
    except NotImplementedError as error:
        if "warpfeed.accelerate.prepare" not in str(error): wrong.append(str(error))
    print(json.dumps(wrong))
    accelerator.end_training()
"""


def test_accelerate_shares_out_as_with_torchs_loader(folder: Path, tmp_path: Path) -> None:
    assert on_two_ranks(tmp_path, COMMON + ACCELERATE, str(folder)) == ["[]", "[]"]


TRAINER = """
    from transformers import Trainer, TrainingArguments
    from warpfeed.transformers import WarpfeedTrainer
    class Dicts(torch_data.Dataset):
        def __len__(self): return len(numbered)
        def __getitem__(self, i):
            image, label = numbered[i]
            return {"pixel_values": image, "labels": label}
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net, self.seen = nn.Linear(192, 41), []
        def forward(self, pixel_values, labels=None):
            self.seen.append((self.training, labels.tolist()))
            out = self.net(pixel_values.flatten(1) * 9)
            return {"loss": nn.functional.cross_entropy(out, labels), "logits": out}
    results = []
    for kind, data in ((Trainer, Dicts()), (WarpfeedTrainer, numbered)):
        for drop_last in (False, True):
            args = TrainingArguments(
                sys.argv[2], num_train_epochs=2, per_device_train_batch_size=4, per_device_eval_batch_size=8, report_to=[],
                use_cpu=True, save_strategy="no", logging_strategy="no", disable_tqdm=True, seed=6, remove_unused_columns=False,
                dataloader_drop_last=drop_last, learning_rate=0.1, ddp_find_unused_parameters=False, label_names=["labels"],
            )
            net = Net()
            trainer = kind(model=net, args=args, train_dataset=data, eval_dataset=data)
            trainer.train()
            got = trainer.evaluate()
            predicted = trainer.predict(data)
            examples = [trainer.num_examples(trainer.get_train_dataloader()), trainer.num_examples(trainer.get_eval_dataloader())]
            rates = round(got["eval_samples_per_second"] / got["eval_steps_per_second"], 2)
            loss = [round(got["eval_loss"], 5), round(predicted.metrics["test_loss"], 5)]
            results.append([net.seen, loss, rates, examples, predicted.predictions.shape, predicted.label_ids.tolist()])
    for theirs, ours in zip(results[:2], results[2:]):
        if json.dumps(theirs) != json.dumps(ours): wrong.append([theirs, ours])
    for name, value in (("train_sampling_strategy", "group_by_length"),):
        setattr(args, name, value)
        try:
            WarpfeedTrainer(model=net, args=args, train_dataset=numbered).get_train_dataloader()
            wrong.append(name)
        except ValueError as error:
            if name not in str(error): wrong.append(str(error))
    # Killed in the middle of an epoch.
    from warpfeed import transforms as t
    from warpfeed.transformers import LoaderArguments
    class Digests(Net):
        def forward(self, pixel_values, labels=None):
            out = super().forward(pixel_values, labels)
            self.seen[-1] += (round(pixel_values.double().sum().item(), 4),)
            return out
    def train(steps, resume=None):
        args = TrainingArguments(
            sys.argv[2] + "/resumed", num_train_epochs=2, per_device_train_batch_size=4, report_to=[], use_cpu=True, save_steps=4,
            max_steps=steps, logging_strategy="no", disable_tqdm=True, seed=6, ddp_find_unused_parameters=False,
        )
        net = Digests()
        data = LoaderArguments(numbered, transform=[t.RandomResizedCrop(8)])
        WarpfeedTrainer(model=net, args=args, train_dataset=data).train(resume_from_checkpoint=resume)
        return net.seen
    whole = train(-1)
    train(5)
    rest = train(-1, sys.argv[2] + "/resumed/checkpoint-4")
    if len(whole) != 12 or rest[-8:] != whole[4:]: wrong.append([whole, rest])
    print(json.dumps(wrong))
    if dist.is_initialized(): dist.destroy_process_group()
"""


def test_the_trainer_has_the_numbers_of_torchs_loader(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    assert on_two_ranks(tmp_path, COMMON + TRAINER, str(folder), str(tmp_path)) == ["[]", "[]"]


LIGHTNING = """
    import warnings
    warnings.simplefilter("ignore")
    import lightning
    class Model(lightning.LightningModule):
        def __init__(self, inside, kind, options):
            super().__init__()
            self.seen, self.net, self.inside, self.kind, self.options = [], nn.Linear(192, 41), inside, kind, options
        def loader(self, **options): return self.kind(numbered, batch_size=4, **options, **self.options)
        def step(self, name, batch):
            self.seen.append([name, batch[1].tolist(), tuple(batch[0].shape)])
            return nn.functional.cross_entropy(self.net(batch[0].flatten(1)), batch[1])
        def training_step(self, batch, _): return self.step("train", batch)
        def validation_step(self, batch, _): self.step("val", batch)
        def test_step(self, batch, _): self.step("test", batch)
        def predict_step(self, batch, _):
            self.step("predict", batch)
            return batch[1]
        def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.01)
    class Inside(Model):
        def train_dataloader(self): return self.loader(shuffle=True)
        def val_dataloader(self): return self.loader()
        def test_dataloader(self): return self.loader(drop_last=True)
        def predict_dataloader(self): return self.loader()
    def made():
        return lightning.Trainer(
            max_epochs=2, accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_progress_bar=False,
            enable_model_summary=False, enable_checkpointing=False, default_root_dir=sys.argv[2],
        )
    each = {}
    for inside in (True, False):
        for kind in (torch_data.DataLoader, DataLoader):
            options = {} if kind is torch_data.DataLoader else {"num_workers": 1, "transform": numbered.transform}
            lightning.seed_everything(5, workers=True, verbose=False)
            model = (Inside if inside else Model)(inside, kind, options)
            trainer = made()
            if inside:
                trainer.fit(model)
                trainer.test(model, verbose=False)
                predicted = trainer.predict(model)
            else:
                trainer.fit(model, model.loader(shuffle=True), model.loader())
                trainer.test(model, model.loader(drop_last=True), verbose=False)
                loader = model.loader()
                trainer.validate(model, loader, verbose=False)
                predicted = trainer.predict(model, loader)
            each[inside, kind] = [model.seen, [one.tolist() for one in predicted]]
        theirs, ours = each[inside, torch_data.DataLoader], each[inside, DataLoader]
        if json.dumps(theirs) != json.dumps(ours): wrong.append([inside, theirs, ours])
    from warpfeed.lightning import DataModule
    model = Model(False, None, {})
    one = {"dataset": numbered}
    data = DataModule({"dataset": numbered, "seed": 1}, one, predict=one, batch_size=4, num_workers=1)
    made().fit(model, data)
    lens = {name: sum(name == one[0] for one in model.seen) for name in ("train", "val")}
    predicted = [one.tolist() for one in made().predict(model, data)]
    if predicted != each[False, torch_data.DataLoader][1]: wrong.append(predicted)
    if lens != {"train": 2 * 6, "val": 2 + 2 * 6}: wrong.append(lens)
    print(json.dumps(wrong))
"""


def test_lightning_shares_out_as_with_torchs_loader(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    wrong = [json.loads(line) for line in on_two_ranks(tmp_path, COMMON + LIGHTNING, str(folder), str(tmp_path))]
    assert wrong == [[], []]


BUCKETS = """
    from collections import Counter
    from warpfeed.transforms import BucketCrop, Normalize, RandomHorizontalFlip
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    sizes = json.loads(sys.argv[2])
    def loader(of=True, batch_size=3, **options):
        return DataLoader(
            sys.argv[1], batch_size, shuffle=True, seed=7, distributed=of, num_workers=1,
            transform=[BucketCrop(random=True), RandomHorizontalFlip(), Normalize(0.5, 0.5)],
            output={"images": "images", "indices": "indices"}, **options,
        )
    def gathered(tensor):
        all = [torch.empty_like(tensor) for _ in range(ranks)]
        dist.all_gather(all, tensor.contiguous())
        return all
    def step(batch):
        # The shape, then in the order of all ranks the indices and sums of the images.
        shapes = [shape.tolist() for shape in gathered(torch.tensor(batch["images"].shape))]
        if shapes != shapes[:1] * ranks: raise AssertionError(f"ranks have {shapes}")
        pixels = torch.stack(gathered(batch["images"]), 1).flatten(0, 1)
        indices = torch.stack(gathered(torch.as_tensor(batch["indices"])), 1).flatten().tolist()
        return described(pixels, indices)
    def described(images, indices):
        return [list(images.shape), indices, images.double().sum((1, 2, 3)).tolist()]
    def steps(of): return [step(batch) for batch in of]
    def samples(steps): return [(shape[1:], *sample) for shape, *both in steps for sample in zip(*both)]
    for buckets in ("32x24,24x32,28x28,40x16,16x40,merge", "area=28x28,step=4,sides=12..56,merge"):
        for drop_last in (True, False):
            options = {"buckets": buckets, "drop_last": drop_last}
            whole = loader(**options)
            epochs = [steps(whole), steps(whole)]
            seen = []
            for epoch in epochs:
                if len(epoch) != len(whole): wrong.append(["len", len(epoch), len(whole)])
                counts = Counter(index for _, indices, _ in epoch for index in indices)
                of = Counter()
                for shape, indices, _ in epoch: of.update({tuple(shape[2:]): len(indices)})
                twice = sum(counts.values()) - len(counts)
                if drop_last:
                    # Less than a batch of all ranks is left out of each bucket.
                    if twice or not 0 < len(sizes) - len(counts) < len(of) * 3 * ranks: wrong.append(["drop", len(counts), twice])
                    if any(count % (3 * ranks) for count in of.values()): wrong.append(["drop", str(of)])
                elif len(counts) != len(sizes) or twice > len(of): wrong.append(["keep", len(counts), twice])
                seen.append(set(counts))
            if epochs[0] == epochs[1] or drop_last and seen[0] == seen[1]: wrong.append("epochs alike")
            for killed in (1, len(whole) // 2, len(whole) + 2):
                begun = loader(**options)
                taken = (batch for _ in range(2) for batch in begun)
                for _ in range(killed): next(taken)
                # As it comes back from a file.
                state = json.loads(json.dumps(begun.state_dict()))
                after = loader(**options)
                after.load_state_dict(state)
                number = killed // len(whole)
                if steps(after) != epochs[number][killed % len(whole):]: wrong.append(["resumed", killed])
    # Other numbers of ranks go on with the same units.
    options = {"buckets": "32x24,24x32,28x28,merge", "drop_last": True, "unit": 12}
    whole = samples(steps(loader(**options)))
    for killed in (1, 4):
        begun = loader(**options)
        taken = iter(begun)
        done = sum(len(step(next(taken))[1]) for _ in range(killed))
        for others in (1, 2, 3, 4):
            rest = []
            for other in range(others):
                after = loader((other, others), 2 if others == 3 else 3, **options)
                after.load_state_dict(begun.state_dict())
                try:
                    rest.append([described(batch["images"], batch["indices"]) for batch in after])
                except ValueError as error:
                    if (12 - done % 12) % others == 0 or "can be shared" not in str(error): wrong.append([killed, others, str(error)])
            if not rest: continue
            if len({json.dumps([shape for shape, *_ in each]) for each in rest}) > 1: wrong.append(["shapes", killed, others])
            each = [samples(steps) for steps in rest]
            if [sample for row in zip(*each) for sample in row] != whole[done:]: wrong.append(["others", killed, others])
    print(json.dumps(wrong))
    dist.destroy_process_group()
"""


def test_ranks_have_the_same_bucket_in_every_step(tmp_path: Path) -> None:
    shapes = [(40, 30), (30, 40), (32, 32), (64, 20), (20, 64), (48, 36), (33, 37)]
    sizes = [shapes[index * index % len(shapes)] for index in range(83)]
    folder = tmp_path / "shapes" / "class"
    folder.mkdir(parents=True)
    for index, (width, height) in enumerate(sizes):
        pixels = np.random.default_rng(index).integers(0, 256, (height, width, 3), "uint8")
        pil.fromarray(pixels).save(folder / f"{index:02}.png")
    assert on_two_ranks(tmp_path, COMMON + BUCKETS, str(folder.parent), json.dumps(sizes)) == ["[]", "[]"]


TIMM = """
    from timm.data import create_loader as theirs
    from warpfeed.timm import create_loader as ours
    dist.init_process_group("gloo")
    # What timm's train.py passes. Not --aa: timm's posterize asks Pillow 13 for 0 bits, which raises.
    common = dict(
        input_size=(3, 16, 16), batch_size=4, no_aug=False, re_prob=0.1, re_mode="pixel", re_count=1, re_split=False,
        train_crop_mode=None, scale=(0.08, 1.0), ratio=(0.75, 4 / 3), hflip=0.5, vflip=0.0, color_jitter=0.4,
        color_jitter_prob=None, grayscale_prob=None, gaussian_blur_prob=None, auto_augment=None,
        num_aug_splits=0, interpolation="bicubic", mean=(0.5,) * 3, std=(0.5,) * 3, num_workers=0, distributed=True,
        collate_fn=None, pin_memory=False, img_dtype=torch.float32, device=torch.device("cpu"), use_prefetcher=False,
        use_multi_epochs_loader=False, persistent_workers=True, worker_seeding="all", input_size_choices=None, num_batches=None,
    )
    for training in (True, False):
        for repeats in (0, 3) if training else (0,):
            each = []
            for make in (theirs, ours):
                loader = make(numbered, **{**common, "is_training": training, "num_aug_repeats": repeats})
                epochs = [len(loader), len(loader.sampler)]
                for epoch in range(2):
                    if training: loader.sampler.set_epoch(epoch)
                    for images, labels in loader:
                        epochs.append([labels.tolist(), list(images.shape), str(images.dtype)])
                        # Evaluations draw nothing.
                        if not training: epochs[-1].append(images.tolist())
                each.append(epochs)
            if each[0] != each[1]: wrong.append([training, repeats, each])
    for name, value in {"re_split": True, "num_aug_splits": 3, "input_size_choices": [8, 16], "tf_preprocessing": True}.items():
        try:
            ours(numbered, **{**common, "is_training": True, name: value})
            wrong.append(name)
        except NotImplementedError as error:
            if name not in str(error): wrong.append(str(error))
    print(json.dumps(wrong))
    dist.destroy_process_group()
"""


def test_timms_loader_shares_out_as_timm_does(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("timm")
    assert on_two_ranks(tmp_path, COMMON + TIMM, str(folder)) == ["[]", "[]"]
