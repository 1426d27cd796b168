//! Targets from every source, in every order, and bad ones.

use crate::common::{Asking, jpeg, small, source};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use warpfeed::ops::CenterCrop;
use warpfeed::pack::{PackOptions, pack};
use warpfeed::source::{
    Concat, EncodedImages, ImageFolder, Input, ListFile, OpenOptions, ReadRequest, RecordFormat, RecordOptions, Sample,
    Source, SourceExt, open,
};
use warpfeed::{
    Batch, Device, ImageCache, LastBatch, OnError, Partition, Pipeline, PipelineBuilder, Result, Sampler, Target,
    TargetSpec, TargetType, Targets,
};

const IMAGES: u64 = 23;

/// The target of image `index`.
fn floats(index: u64) -> Vec<f32> {
    // RecordIO's begin with the label.
    vec![(index % 10) as f32, index as f32 / 3.0, -1.5e-3]
}

fn tags(index: u64) -> Vec<i64> {
    (0..index as i64 % 4).map(|i| (i * 3 + index as i64) % 8).collect()
}

fn text(index: u64) -> Vec<u8> {
    format!("image {index}").repeat(index as usize % 3).into_bytes()
}

fn images() -> EncodedImages {
    let all = |target: fn(u64) -> Target| (0..IMAGES).map(target);
    source(IMAGES)
        .with_targets("label", all(|index| Target::Floats(floats(index))))
        .and_then(|images| images.with_targets("json.tags", all(|index| Target::Integers(tags(index)))))
        .and_then(|images| images.with_targets("txt", all(|index| Target::Bytes(text(index)))))
        .unwrap()
}

/// The targets of a batch by the images' indices, as bytes, padding left out.
fn add(batch: &Batch, all: &mut Vec<(u64, Vec<u8>)>) {
    let of: Box<dyn Fn(usize) -> Vec<u8>> = match batch.targets().unwrap() {
        Targets::Bytes(bytes) => Box::new(|i| bytes.get(i).unwrap().to_vec()),
        Targets::Numbers(numbers) => {
            let [images, len] = numbers.shape();
            assert_eq!((images, numbers.device()), (batch.len(), Device::Cpu));
            Box::new(move |i| match numbers.element() {
                TargetType::F32 => row_bytes(numbers.as_slice::<f32>().unwrap(), i, len, |number| number.to_le_bytes()),
                TargetType::U32 => row_bytes(numbers.as_slice::<u32>().unwrap(), i, len, |number| number.to_le_bytes()),
            })
        }
    };
    all.extend((0..batch.len() - batch.padding()).map(|i| (batch.indices()[i], of(i))));
}

fn row_bytes<T: Copy>(numbers: &[T], i: usize, len: usize, bytes: fn(T) -> [u8; 4]) -> Vec<u8> {
    numbers[i * len..][..len].iter().flat_map(|&number| bytes(number)).collect()
}

fn epoch(builder: PipelineBuilder) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    builder.device(Device::Cpu).build().unwrap().epoch(1).for_each(|batch| add(&batch.unwrap(), &mut all));
    all
}

fn as_bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The result of a spec for an image's target.
fn want(spec: &str, index: u64) -> Vec<u8> {
    match spec {
        "float=3:label" => as_bytes(&floats(index)),
        "multi-hot=8:json.tags" => {
            let mut row = [0.0; 8];
            tags(index).iter().for_each(|&tag| row[tag as usize] = 1.0);
            as_bytes(&row)
        }
        "bytes:txt" => text(index),
        "soft=10" => as_bytes(&std::array::from_fn::<f32, 10, _>(|class| f32::from(class as u64 == index % 10))),
        "class=10" => ((index % 10) as u32).to_le_bytes().to_vec(),
        other => unreachable!("{other}"),
    }
}

fn check(spec: &str, of: &str, delivered: &[(u64, Vec<u8>)], origin: impl Fn(u64) -> u64) {
    assert!(!delivered.is_empty());
    for (index, target) in delivered {
        assert_eq!(*target, want(spec, origin(*index)), "{spec} of {of}: {index}");
    }
}

const SPECS: [&str; 5] = ["float=3:label", "multi-hot=8:json.tags", "bytes:txt", "soft=10", "class=10"];

fn spec(text: &str) -> TargetSpec {
    text.parse().unwrap()
}

#[test]
fn targets_belong_to_their_images_in_every_order() {
    for text in SPECS {
        let builder = || small(images()).targets(spec(text));
        let whole = epoch(builder());
        assert_eq!(whole.len() as u64, IMAGES);
        check(text, "memory", &whole, |index| index);
        assert_eq!(epoch(builder().threads(0).batch_size(7).prefetch(5)), whole, "{text}");
        assert_eq!(epoch(builder().last_batch(LastBatch::Pad)), whole, "{text}: padding");
        let mut together: Vec<_> = (0..3)
            .flat_map(|rank| epoch(builder().partition(Partition::new(rank, 3).unwrap()).equal_batches(true)))
            .collect();
        together.sort();
        let mut sorted = whole.clone();
        sorted.sort();
        assert_eq!(together, sorted, "{text}: ranks");
        // From the cache, in the second epoch.
        let cached = builder().cache(ImageCache::memory(1 << 24)).device(Device::Cpu).build().unwrap();
        cached.epoch(0).for_each(|batch| drop(batch.unwrap()));
        let mut again = Vec::new();
        cached.epoch(1).for_each(|batch| add(&batch.unwrap(), &mut again));
        assert_eq!(again, whole, "{text}: cache");
    }
}

#[test]
fn composed_sources_carry_targets() {
    for text in SPECS {
        let part = images().subset([7, 3, 11]).unwrap();
        let both = Concat::new([part.into_source(), images().into_source()]).unwrap();
        let origin = |index| if index < 3 { [7, 3, 11][index as usize] } else { index - 3 };
        check(text, "a concatenation", &epoch(small(both).targets(spec(text))), origin);
    }
    let mapped = images().map_labels(["odd"], |label| label + 1);
    assert_eq!(mapped.label(3), Some(4));
    assert_eq!(mapped.target(3, "txt").unwrap(), Target::Bytes(text(3)));
}

#[test]
fn a_resumed_epoch_goes_on_with_its_targets() {
    let pipeline = small(images()).targets(spec("bytes:txt")).device(Device::Cpu).build().unwrap();
    let (mut whole, mut pieces) = (Vec::new(), Vec::new());
    pipeline.epoch(1).for_each(|batch| add(&batch.unwrap(), &mut whole));
    let first = pipeline.epoch(1).next().unwrap().unwrap();
    add(&first, &mut pieces);
    pipeline.resume(&first.state()).unwrap().for_each(|batch| add(&batch.unwrap(), &mut pieces));
    assert_eq!(pieces, whole);
}

fn packed(format: RecordFormat, field: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("packed");
    let options = PackOptions::new(format).target(Some(field.to_owned()));
    assert_eq!(pack(&images(), &out, &options, &mut |_| {}).unwrap().images, IMAGES);
    (folder, out)
}

fn streamed(path: &Path) -> Input {
    OpenOptions::default().window(Some(6)).open(path).unwrap()
}

#[test]
fn packing_keeps_targets_and_shards_and_streams_have_them() {
    for (format, text) in [
        (RecordFormat::WebDataset, "multi-hot=8:json.tags"),
        (RecordFormat::WebDataset, "bytes:txt"),
        (RecordFormat::WebDataset, "float=3:label"),
        (RecordFormat::TfRecord, "multi-hot=8:json.tags"),
        (RecordFormat::TfRecord, "bytes:txt"),
        (RecordFormat::TfRecord, "float=3:label"),
        (RecordFormat::RecordIo, "float=3:label"),
    ] {
        let (_folder, path) = packed(format, spec(text).to_string().split_once(':').unwrap().1);
        let of = format!("{format:?}");
        check(text, &of, &epoch(small(open(&path).unwrap()).targets(spec(text))), |index| index);
        for label in ["class=10", "soft=10"] {
            check(label, &of, &epoch(small(open(&path).unwrap()).targets(spec(label))), |index| index);
        }

        // In order, a stream's indices are the source's.
        let in_order = |input| small(input).targets(spec(text));
        let seeded = |input: Input| {
            Pipeline::builder(input)
                .batch_size(5)
                .transform(CenterCrop::new(8))
                .targets(spec(text))
                .device(Device::Cpu)
                .build()
                .unwrap()
        };
        let (mut stream, mut pieces) = (Vec::new(), Vec::new());
        seeded(streamed(&path)).epoch(0).for_each(|batch| add(&batch.unwrap(), &mut stream));
        check(text, &of, &stream, |index| index);
        assert_eq!(stream.len() as u64, IMAGES);
        let first = seeded(streamed(&path)).epoch(0).next().unwrap().unwrap();
        add(&first, &mut pieces);
        let rest = seeded(streamed(&path)).resume(&first.state()).unwrap();
        rest.for_each(|batch| add(&batch.unwrap(), &mut pieces));
        assert_eq!(pieces, stream, "{of}: resumed");

        // Shuffled, every target is there once.
        let count = |all: &[(u64, Vec<u8>)]| {
            let mut counts = BTreeMap::<Vec<u8>, u64>::new();
            all.iter().for_each(|(_, target)| *counts.entry(target.clone()).or_default() += 1);
            counts
        };
        assert_eq!(count(&epoch(in_order(streamed(&path)))), count(&stream), "{of}: shuffled");
    }
}

#[test]
fn features_of_tfrecord_are_packed_as_parts_of_webdataset_under_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let field = "image/object/bbox";
    let images = source(IMAGES).with_targets(field, (0..IMAGES).map(|index| Target::Floats(floats(index)))).unwrap();
    let out = |name: &str| folder.path().join(name);
    let options = |format| PackOptions::new(format).target(Some(field.to_owned()));
    pack(&images, &out("records"), &options(RecordFormat::TfRecord), &mut |_| {}).unwrap();
    let records = open(out("records")).unwrap().into_data_set().unwrap();
    pack(&*records, &out("tar"), &options(RecordFormat::WebDataset), &mut |_| {}).unwrap();
    let text = "float=3:image/object/bbox";
    let want = epoch(small(images).targets(spec(text)));
    assert_eq!(epoch(small(open(out("records")).unwrap()).targets(spec(text))), want);
    assert_eq!(epoch(small(open(out("tar")).unwrap()).targets(spec(text))), want);
    // The part is there for other programs, under an ending without a slash.
    assert_eq!(epoch(small(open(out("tar")).unwrap()).targets(spec("float=3:image%2fobject%2fbbox"))), want);
    // A percent sign would be another name for it.
    let options = PackOptions::new(RecordFormat::WebDataset).target(Some("image%2fobject".into()));
    assert!(pack(&source(1), &out("percent"), &options, &mut |_| {}).unwrap_err().is_parameter());
}

#[test]
fn a_source_is_asked_for_image_and_target_at_once() {
    let counts = Arc::<[AtomicUsize; 3]>::default();
    // Counts calls: reads alone, targets alone, both together.
    let asked = || {
        let counts = Arc::clone(&counts);
        Asking(images(), move |_, want: &ReadRequest<'_>| {
            let kind = if !want.image { 1 } else { 2 * usize::from(want.target.is_some()) };
            counts[kind].fetch_add(1, Relaxed);
            Ok(())
        })
    };
    let composed = [
        asked().into_source(),
        asked().subset(0..IMAGES).unwrap().into_source(),
        asked().map_labels([""; 0], |label| label).into_source(),
        Concat::new([asked().into_source()]).unwrap().into_source(),
    ];
    for (number, source) in (1..).zip(composed) {
        let got = epoch(small(source).targets(spec("float=3:label")));
        check("float=3:label", "a source that gives both", &got, |index| index);
        let counted = [0, 1, 2].map(|i| counts[i].load(Relaxed));
        assert_eq!(counted, [0, 0, number * IMAGES as usize]);
    }
}

#[test]
fn what_a_format_cannot_hold_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (format, field, says) in [
        (RecordFormat::RecordIo, "txt", "array of numbers"),
        (RecordFormat::WebDataset, "jpg", "ending"),
        (RecordFormat::WebDataset, "Box", "ending"),
        (RecordFormat::TfRecord, "image/encoded", "feature"),
    ] {
        let options = PackOptions::new(format).target(Some(field.to_owned()));
        let error = pack(&images(), &folder.path().join("out"), &options, &mut |_| {}).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains(says), "{error}");
    }
    // An array of labels that does not begin with the label.
    let wrong = source(3).with_targets("label", [0.0, 7.0, 2.0].map(|label| Target::Floats(vec![label]))).unwrap();
    let options = PackOptions::new(RecordFormat::RecordIo).target(Some("label".to_owned()));
    let report = pack(&wrong, &folder.path().join("labels"), &options, &mut |_| {}).unwrap();
    assert_eq!((report.images, report.bad_count, report.bad[0].index), (2, 1, 1));
}

#[test]
fn bad_targets_are_bad_samples_under_the_policy() {
    let target = |index| match index {
        3 => Target::Floats(vec![1.0]),
        5 => Target::Bytes(b"1 two 3".to_vec()),
        8 => Target::Floats(vec![0.0, f32::NAN, 0.0]),
        _ => Target::Floats(floats(index)),
    };
    let images = || source(IMAGES).with_targets("label", (0..IMAGES).map(target)).unwrap();
    let builder = || small(images()).targets(spec("float=3:label")).device(Device::Cpu);
    let skipping = builder().on_error(OnError::Skip).build().unwrap();
    let (mut epoch, mut all) = (skipping.epoch(1), Vec::new());
    epoch.by_ref().for_each(|batch| add(&batch.unwrap(), &mut all));
    assert_eq!(epoch.bad().iter().map(|bad| bad.index).collect::<Vec<_>>(), [3, 5, 8]);
    assert!(epoch.bad().iter().all(|bad| bad.error.starts_with("target label: ")), "{:?}", epoch.bad());
    check("float=3:label", "a skipping epoch", &all, |index| index);
    assert_eq!(all.len() as u64, IMAGES - 3);

    let mut all = Vec::new();
    let substituting = builder().on_error(OnError::Substitute).build().unwrap();
    substituting.epoch(1).for_each(|batch| add(&batch.unwrap(), &mut all));
    check("float=3:label", "a substituting epoch", &all, |index| index);
    assert_eq!(all.len() as u64, IMAGES);

    let error = builder().build().unwrap().epoch(1).find_map(Result::err).unwrap();
    assert!(error.is_bad_sample() && error.to_string().contains("target label: "), "{error}");
}

#[test]
fn fields_that_no_sample_has_are_refused_or_end_the_epoch() {
    let (_folder, path) = packed(RecordFormat::RecordIo, "label");
    for (input, field) in [(Input::from(images()), "box"), (open(&path).unwrap(), "txt"), (streamed(&path), "txt")] {
        let is_stream = matches!(input, Input::Stream(_));
        let builder = small(input).targets(TargetSpec::bytes().field(field)).on_error(OnError::Skip);
        let error = match builder.device(Device::Cpu).build() {
            Ok(pipeline) if is_stream => pipeline.epoch(0).next().unwrap().unwrap_err(),
            refused => refused.unwrap_err(),
        };
        assert!(error.is_parameter() && error.to_string().contains(field), "{error}");
    }
    // So are fewer classes than the source has, if its labels are the targets.
    let named = || images().with_classes(["a", "b", "c"]);
    let build = |spec: &str| small(named()).targets(spec.parse().unwrap()).device(Device::Cpu).build().map(drop);
    assert!(build("class=3").is_ok() && build("soft=9").is_ok() && build("class=2:txt").is_ok());
    for spec in ["class=2", "soft=2/0.1"] {
        assert!(build(spec).unwrap_err().to_string().contains("3 or more"), "{spec}");
    }
}

#[test]
fn parts_of_a_tar_are_found_before_and_behind_the_image() {
    let member = |name: &str, content: &[u8]| {
        let mut block = vec![0; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        block[148..156].fill(b' ');
        block[156] = b'0';
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        block.extend(content);
        block.resize(block.len().next_multiple_of(512), 0);
        block
    };
    let image = jpeg(20, 20, 1);
    let tar = [
        member("a.txt", b"one"),
        member("a.jpg", &image),
        member("b.jpg", &image),
        member("b.json", br#"{"label": 2, "kind": "two", "box": [1, 2]}"#),
        member("b.txt", b"two"),
        member("c.jpg", &image),
        member("d.TXT", b"four"),
        member("d.jpg", &image),
        vec![0; 1024],
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    fs::write(&path, tar.concat()).unwrap();
    let options = OpenOptions::default().records(RecordOptions::default().label(Some("none".into())));
    let shards = options.open(&path).unwrap().into_data_set().unwrap();
    let text = |index, field| match shards.target(index, field) {
        Ok(Target::Bytes(bytes)) => String::from_utf8(bytes).unwrap(),
        Ok(other) => unreachable!("{other:?}"),
        Err(error) => {
            assert!(error.is_bad_sample() && error.to_string().contains(field), "{error}");
            "none".to_owned()
        }
    };
    assert_eq!([0, 1, 2, 3].map(|index| text(index, "txt")), ["one", "two", "none", "four"]);
    assert_eq!([0, 1].map(|index| text(index, "json.box")), ["none", "[1,2]"]);
    assert_eq!(text(1, "json.kind"), "two");
}

#[test]
fn folders_and_lists_have_columns() {
    let folder = tempfile::tempdir().unwrap();
    for (name, seed) in [("cat/1.jpg", 1), ("cat/2.jpg", 2), ("dog/1.jpg", 3)] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, jpeg(20, 20, seed)).unwrap();
    }
    fs::write(folder.path().join("metadata.csv"), "file_name,box\ncat/1.jpg,\"1,2\"\ncat/2.jpg,3 4\n").unwrap();
    fs::write(folder.path().join("dog/metadata.jsonl"), "{\"file_name\": \"1.jpg\", \"box\": [5, 6.5]}\n").unwrap();
    let want: Vec<(u64, Vec<u8>)> =
        (0..).zip([[1.0, 2.0], [3.0, 4.0], [5.0, 6.5]]).map(|(index, row)| (index, as_bytes(&row))).collect();
    let boxes = |input: Input| {
        let mut all = epoch(Pipeline::builder(input).targets(spec("float=2:box")).transform(CenterCrop::new(8)));
        all.sort();
        all
    };
    assert_eq!(boxes(ImageFolder::open(folder.path()).unwrap().into()), want);

    let list = folder.path().join("list.tsv");
    let lines = "#path\tbox\tlabel\ncat/1.jpg\t1,2\t7\ncat/2.jpg\t3,4\t8\ndog/1.jpg\t5 6.5\t9\n";
    fs::write(&list, lines).unwrap();
    let source = ListFile::open(&list).unwrap();
    assert_eq!([0, 1, 2].map(|index| source.label(index).unwrap()), [7, 8, 9]);
    assert_eq!(boxes(source.into()), want);
    for wrong in ["cat/1.jpg\t1", "cat/1.jpg\t1\t2\t3", "cat/1.jpg\t1\tx"] {
        fs::write(&list, format!("#path\tbox\tlabel\n{wrong}\n")).unwrap();
        let error = ListFile::open(&list).unwrap_err().to_string();
        assert!(error.contains("box, label") && error.contains("line 2"), "{error}");
    }
    let error = ListFile::open(&{
        fs::write(&list, "cat/1.jpg\t3\n").unwrap();
        list
    })
    .unwrap();
    assert!(error.target(0, "box").unwrap_err().is_parameter());
}

#[test]
fn the_command_delivers_counts_and_digests_targets() {
    let (_folder, path) = packed(RecordFormat::WebDataset, "txt");
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_warpfeed"));
        command.arg("run").arg(&path).args(["--json", "--digest", "--device", "cpu", "--preset", "eval"]);
        let output = command.args(arguments).output().unwrap();
        let json: Result<serde_json::Value, _> = serde_json::from_slice(&output.stdout);
        json.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
    };
    let bytes: usize = (0..IMAGES).map(|index| text(index).len()).sum();
    let with = run(&["--targets", "bytes:txt"]);
    assert_eq!(with["targets"], serde_json::json!({"images": IMAGES, "numbers": 0, "bytes": bytes}));
    let numbers = run(&["--targets", "soft=10", "--threads", "1", "--batch-size", "3"]);
    assert_eq!(numbers["targets"]["numbers"], IMAGES * 10);
    let without = run(&[]);
    assert!(without.get("targets").is_none());
    assert!(without["digest"] != with["digest"] && with["digest"] != numbers["digest"]);
    assert_eq!(run(&["--targets", "bytes:txt", "--threads", "3", "--batch-size", "4"])["digest"], with["digest"]);
}

#[test]
fn what_needs_labels_is_refused_where_there_are_none() {
    let unlabeled = || EncodedImages::unlabeled((0..4).map(|i| jpeg(20, 20, i)));
    let builder = || Pipeline::builder(unlabeled()).batch_size(4).transform(CenterCrop::new(8)).device(Device::Cpu);
    for refused in [
        builder().targets(TargetSpec::soft(3)).build(),
        builder().targets(TargetSpec::class(3)).build(),
        builder().sampler(Sampler::class_balanced()).build(),
    ] {
        let error = refused.err().unwrap();
        assert!(error.is_parameter() && error.to_string().contains("labels"), "{error}");
    }
    let pipeline = builder().build().unwrap();
    let batch = pipeline.epoch(0).next().unwrap().unwrap();
    assert!(!batch.has_labels() && batch.len() == 4);
    let error = batch.labels().unwrap_err().to_string();
    assert!(["--label-field", "Batch::into_images"].iter().all(|remedy| error.contains(remedy)), "{error}");
    assert!(batch.receipts(false).unwrap().iter().all(|receipt| receipt.label.is_none()));
    assert!(batch.into_parts().1.is_none());
    // Of a source that is wrong about its samples, the odd ones are bad.
    struct Odd(EncodedImages);
    impl Source for Odd {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn read<'a>(&'a self, index: u64, want: &ReadRequest<'_>, sample: &mut Sample<'a>) -> Result<()> {
            self.0.read(index, want, sample)
        }
        fn label(&self, index: u64) -> Option<u32> {
            (index != 2).then_some(7)
        }
        fn name(&self, index: u64) -> std::borrow::Cow<'_, str> {
            self.0.name(index)
        }
    }
    let odd =
        Pipeline::builder(Odd(unlabeled())).transform(CenterCrop::new(8)).on_error(OnError::Skip).device(Device::Cpu);
    let odd = odd.build().unwrap();
    let mut epoch = odd.epoch(0);
    assert_eq!(epoch.next().unwrap().unwrap().labels().unwrap(), [7; 3]);
    assert!(epoch.bad()[0].error.contains("it has no label, and others have"), "{:?}", epoch.bad());
}
