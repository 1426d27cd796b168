//! Shards read from front to back give each sample of random access once.

use crate::common::{self, Delivered, built_epoch as epoch, delivered, in_order, samples};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use warpfeed::pack::{PackOptions, pack};
use warpfeed::{
    EpochState, Error, LastBatch, OnError, Partition, Pipeline,
    source::{
        AtEnd, EncodedImages, Input, OpenOptions, RecordFormat, RecordOptions, RecordStream, Stream, StreamMix,
        StreamOptions, StreamStart, open,
    },
};

/// Images that fill three shards of 1 MB.
fn images() -> EncodedImages {
    EncodedImages::new((0..50).map(|i| (common::jpeg(310 + i as u32, 230, i), i as u32 % 7)))
}

fn packed(format: RecordFormat) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("train");
    let options = PackOptions::new(format).shard_bytes(1_000_000);
    let report = pack(&images(), &out, &options, &mut |_| {}).unwrap();
    assert!((3..6).contains(&report.shards.len()), "{} shards of {} bytes", report.shards.len(), report.bytes);
    (folder, out)
}

/// The shards in a folder.
fn shards(folder: &Path) -> Vec<PathBuf> {
    let mut shards: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    shards
        .retain(|path| path.extension().is_some_and(|ending| ["tar", "rec", "tfrecord"].iter().any(|e| ending == *e)));
    shards.sort();
    shards
}

fn streamed(path: &Path, window: usize) -> Input {
    OpenOptions::default().window(Some(window)).open(path).unwrap()
}

fn sorted(delivered: &[Delivered]) -> Vec<u64> {
    let mut indices: Vec<u64> = delivered.iter().map(|sample| sample.index).collect();
    indices.sort_unstable();
    indices
}

#[test]
fn in_order_a_stream_gives_what_random_access_gives() {
    for &format in RecordFormat::ALL {
        let (_folder, out) = packed(format);
        let want = epoch(in_order(images()), 3);
        assert_eq!(epoch(in_order(open(&out).unwrap()), 3), want);
        for (threads, prefetch) in [(0, 1), (1, 3), (4, 2)] {
            let builder = in_order(streamed(&out, 10)).threads(threads).prefetch(prefetch);
            assert_eq!(epoch(builder, 3), want, "{format:?}, {threads} threads");
        }
        for (last, count) in [(LastBatch::Keep, 13), (LastBatch::Pad, 13), (LastBatch::Drop, 12)] {
            let pipeline = in_order(streamed(&out, 10)).last_batch(last).build().unwrap();
            let batches: Vec<_> = pipeline.epoch(3).map(Result::unwrap).collect();
            let full = last != LastBatch::Keep;
            assert!(batches.len() == count && batches.iter().take(12).all(|batch| batch.padding() == 0), "{last:?}");
            assert!(!full || batches.iter().all(|batch| batch.len() == 4));
        }
        // Where a batch ends with the stream.
        assert_eq!(epoch(in_order(streamed(&out, 10)).batch_size(25), 3), want);
        assert_eq!(epoch(in_order(streamed(&out, 10)).limit(9), 3), want[..9]);
    }
}

#[test]
fn shuffled_streams_are_repeatable_and_complete() {
    let (_folder, out) = packed(RecordFormat::WebDataset);
    let stream = || in_order(streamed(&out, 8)).shuffle(5);
    let pixels = |samples: &[Delivered]| samples.iter().map(|sample| sample.label).collect::<Vec<_>>();
    let first = epoch(stream(), 0);
    assert_eq!(epoch(stream().threads(5).prefetch(4).batch_size(3), 0), first);
    assert_ne!(pixels(&epoch(stream(), 1)), pixels(&first));
    assert_ne!(pixels(&epoch(stream().shuffle(6), 0)), pixels(&first));
    let labels = |samples: &[Delivered]| {
        let mut labels = pixels(samples);
        labels.sort_unstable();
        labels
    };
    let all = labels(&epoch(in_order(images()), 0));
    assert_eq!(labels(&first), all);
    // By whole shards where there are enough, by samples where there are not.
    for count in [2, 3, 9] {
        let (mut together, mut indices) = (Vec::new(), Vec::new());
        for index in 0..count {
            let part = epoch(stream().partition(Partition::new(index, count).unwrap()), 0);
            indices.extend(sorted(&part));
            together.extend(part);
        }
        indices.sort_unstable();
        indices.dedup();
        assert_eq!(labels(&together), all, "{count} ranks");
        assert_eq!(indices.len(), 50, "no two ranks draw the same numbers");
    }
    let pipeline = stream().build().unwrap();
    let mut epoch = pipeline.epoch(0);
    let _ = epoch.by_ref().count();
    let stats = epoch.stats();
    assert!(stats.displacement_sum > 50 && (8..50).contains(&stats.displacement_max), "{stats:?}");
}

/// Takes an epoch in pieces of one batch, each in a pipeline of its own.
fn in_pieces(pipeline: impl Fn(usize) -> Pipeline, epoch: u64) -> (Vec<Delivered>, EpochState) {
    let mut got = Vec::new();
    let mut state: Option<EpochState> = None;
    for piece in 0.. {
        let pipeline = pipeline(piece);
        let mut rest = state.as_ref().map_or_else(|| pipeline.epoch(epoch), |state| pipeline.resume(state).unwrap());
        let before = rest.state();
        assert!(state.as_ref().is_none_or(|state| *state == before), "an epoch begins where the state says");
        let Some(batch) = rest.next() else { break };
        got.extend(samples(&batch.unwrap()));
        state = Some(serde_json::from_str(&serde_json::to_string(&rest.state()).unwrap()).unwrap());
    }
    (got, state.unwrap())
}

#[test]
fn a_stream_is_resumed_at_the_very_sample() {
    for &format in RecordFormat::ALL {
        let (_folder, out) = packed(format);
        for (window, shard, damaged) in
            [(8, "0/1", false), (1, "0/1", false), (8, "1/2", false), (100, "0/1", true), (8, "6/7", false)]
        {
            if damaged {
                let mut paths = shards(&out);
                let second = paths.remove(1);
                let bytes = fs::read(&second).unwrap();
                fs::write(second, &bytes[..bytes.len() / 2]).unwrap();
            }
            let pipeline = |piece: usize| {
                let stream = RecordStream::open(format, shards(&out), StreamOptions { window, ..Default::default() });
                let builder = in_order(stream.unwrap()).partition(shard.parse().unwrap()).on_error(OnError::Skip);
                let builder = if window > 1 { builder.shuffle(5) } else { builder };
                builder.threads(piece % 3).batch_size(1 + piece % 4).build().unwrap()
            };
            let whole = delivered(&pipeline(1), 2);
            assert!(whole.len() > 5);
            let (got, _) = in_pieces(pipeline, 2);
            assert_eq!(got, whole, "{format:?}, window {window}, shard {shard}");
        }
    }
}

#[test]
fn streams_are_split_by_shard() {
    let (_folder, out) = packed(RecordFormat::TfRecord);
    let names = |part: Input| -> Vec<Delivered> {
        let pipeline = in_order(part).on_error(OnError::Skip).build().unwrap();
        delivered(&pipeline, 0)
    };
    let bytes = |samples: &[Delivered]| {
        let mut labels: Vec<u32> = samples.iter().map(|sample| sample.label).collect();
        labels.sort_unstable();
        labels
    };
    let whole = bytes(&names(streamed(&out, 8)));
    let stream = streamed(&out, 8).into_stream().unwrap();
    let count = stream.shards() as u32;
    let (train, held_out) = streamed(&out, 8).split(0.3, 42).unwrap();
    let counts = |part: &Input| part.clone().into_stream().unwrap().shards();
    assert_eq!((counts(&train), counts(&held_out)), (u64::from(count) - 1, 1));
    assert_eq!(bytes(&[names(train.clone()), names(held_out.clone())].concat()), whole);
    // A state of one part is not a state of the other.
    let state = in_order(train).build().unwrap().epoch(0).next().unwrap().unwrap().state();
    assert!(in_order(held_out).build().unwrap().resume(&state).unwrap_err().to_string().contains("fingerprint"));
    let folds: Vec<Delivered> =
        (0..count).flat_map(|fold| names(streamed(&out, 8).kfold(count, fold, 1).unwrap().1)).collect();
    assert_eq!(bytes(&folds), whole);
    assert!(streamed(&out, 8).split(0.01, 1).err().unwrap().to_string().contains("shards"));
    assert!(stream.part(&[9]).err().unwrap().is_parameter() && stream.part(&[]).err().unwrap().is_parameter());
    // Of a data set it takes samples.
    let (train, held_out) = Input::from(images()).split(0.2, 42).unwrap();
    assert_eq!((names(train).len(), names(held_out).len()), (40, 10));
    let mix = StreamMix::by_weight([(streamed(&out, 8), 1.0)], AtEnd::Stop, 1).unwrap();
    assert!(matches!(Input::from(mix).kfold(2, 0, 1), Err(Error::Parameter { .. })));
}

#[test]
fn mixed_streams_keep_their_shares_and_are_resumed_at_the_very_sample() {
    let ((_a, first), (_b, second)) = (packed(RecordFormat::TfRecord), packed(RecordFormat::WebDataset));
    let classes = (0..7).map(|i| i.to_string()).collect::<Vec<_>>();
    // The second stream's labels are those of its first shard alone, so that it is shorter.
    let mix = |window| {
        let stream = |format, paths: Vec<PathBuf>| {
            let records = RecordOptions::default().classes(classes.clone());
            Input::from(RecordStream::open(format, paths, StreamOptions { records, window }).unwrap())
        };
        let second = shards(&second)[..1].to_vec();
        let both = [(stream(RecordFormat::TfRecord, shards(&first)), 3), (stream(RecordFormat::WebDataset, second), 1)];
        StreamMix::by_count(both, AtEnd::Repeat, 9).unwrap()
    };
    for (window, rank) in [(1, "0/1"), (8, "0/1"), (8, "1/2")] {
        let builder = |threads| {
            let builder = in_order(mix(window)).partition(rank.parse().unwrap()).threads(threads);
            if window > 1 { builder.shuffle(5) } else { builder }
        };
        let pipeline = builder(2).build().unwrap();
        let whole = delivered(&pipeline, 2);
        let names: Vec<String> = {
            // Which stream a sample is of, its name says.
            let mut start = StreamStart::whole(2);
            (start.partition, start.shuffle) = (rank.parse().unwrap(), (window > 1).then_some(5));
            let mut samples = mix(window).begin(&start).unwrap();
            std::iter::from_fn(|| samples.next().unwrap()).map(|sample| sample.name).collect()
        };
        assert_eq!(names.len(), whole.len());
        assert!(names.chunks_exact(4).all(|four| four.iter().filter(|name| name.contains(".tar")).count() == 1));
        assert!(names.len() > 12);
        assert_eq!(delivered(&builder(0).build().unwrap(), 2), whole);
        assert_eq!(in_pieces(|piece| builder(piece % 3).batch_size(1 + piece % 4).build().unwrap(), 2).0, whole);
    }
}

#[test]
fn a_state_of_another_stream_is_refused() {
    let (_folder, out) = packed(RecordFormat::RecordIo);
    let pipeline = |window| in_order(streamed(&out, window)).shuffle(5).build().unwrap();
    let (_, state) = {
        let pipeline = pipeline(8);
        let mut epoch = pipeline.epoch(2);
        (epoch.next().unwrap().unwrap(), epoch.state())
    };
    let refused = |pipeline: Pipeline| pipeline.resume(&state).unwrap_err().to_string();
    assert!(refused(pipeline(9)).contains("fingerprint"));
    assert!(refused(in_order(streamed(&out, 8)).build().unwrap()).contains("not shuffled"));
    let edited = |place: &str| {
        let mut json = serde_json::to_value(&state).unwrap();
        json["place"] = place.into();
        serde_json::from_value::<EpochState>(json).unwrap()
    };
    for place in ["!", "", "000000", "080880"] {
        let error = pipeline(8).resume(&edited(place)).unwrap_err();
        assert!(error.is_parameter() && error.to_string().contains("damaged or edited"), "{place:?}: {error}");
    }
    // Shards that have changed are not gone on with.
    for path in shards(&out) {
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, [&bytes[..], &bytes[..]].concat()).unwrap();
    }
    let error = pipeline(8).resume(&state).unwrap().next().unwrap().unwrap_err().to_string();
    assert!(error.contains(".rec broke off at byte 0: it is not what it was when the epoch began"), "{error}");
}

/// Four shards of four small images each.
fn small_shards(folder: &Path, format: RecordFormat) -> Vec<PathBuf> {
    let shard = |number: u64| {
        let samples = (4 * number..4 * number + 4).map(|i| (common::jpeg(24, 20, i), i as u32 % 7));
        let out = folder.join(format!("{number}"));
        pack(&EncodedImages::new(samples), &out, &PackOptions::new(format), &mut |_| {}).unwrap().shards.remove(0)
    };
    (0..4).map(shard).collect()
}

/// Numbers of a cursor: seven bits a byte, the lowest first; all but the last byte have the upper bit.
fn numbers(mut cursor: &[u8]) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(end) = cursor.iter().position(|byte| byte & 0x80 == 0) {
        let (number, rest) = cursor.split_at(end + 1);
        numbers.push(number.iter().rev().fold(0, |sum, byte| sum << 7 | u64::from(byte & 0x7f)));
        cursor = rest;
    }
    numbers
}

fn cursor(numbers: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &number in numbers {
        let mut rest = number;
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
    }
    bytes
}

/// A number near another, or at the end of some range.
fn other_number(random: &mut common::Random, number: u64) -> u64 {
    let power = 1_u64 << random.within(0, 63);
    match random.within(0, 7) {
        0 => number.wrapping_add(1),
        1 => number.wrapping_sub(1),
        2 => number ^ power,
        3 => power,
        4 => u64::MAX - power,
        5 => u64::MAX,
        6 => 0,
        _ => random.within(0, 40).into(),
    }
}

fn other_bytes(random: &mut common::Random, bytes: &mut Vec<u8>) {
    let at = random.next() as usize % bytes.len();
    match random.within(0, 3) {
        0 => bytes[at] ^= 1 << random.within(0, 7),
        1 => bytes[at] = random.next() as u8,
        2 => drop(bytes.remove(at)),
        _ => bytes.insert(at, random.next() as u8),
    }
}

/// The inputs whose states are damaged below: in order, shuffled, and a mix.
fn damaged_inputs(format: RecordFormat, paths: &[PathBuf]) -> [(bool, Input); 3] {
    let stream = |paths: &[PathBuf], window| {
        let options = StreamOptions { window, ..StreamOptions::default() };
        Input::from(RecordStream::open(format, paths.to_vec(), options).unwrap())
    };
    let parts = [(stream(&paths[..3], 3), 2), (stream(&paths[3..], 3), 1)];
    let mix = StreamMix::by_count(parts, AtEnd::Repeat, 9).unwrap();
    [(false, stream(paths, 1)), (true, stream(paths, 5)), (true, mix.into())]
}

#[test]
fn damaged_cursors_are_refused_and_cause_no_panic() {
    let mut random = common::Random(26);
    let (mut refused, mut failed, mut whole) = (0, 0, 0);
    for &format in RecordFormat::ALL {
        let folder = tempfile::tempdir().unwrap();
        let paths = small_shards(folder.path(), format);
        for ((shuffle, input), rank) in damaged_inputs(format, &paths).into_iter().zip(["0/1", "0/1", "0/1"]).chain(
            // With fewer shards than ranks.
            damaged_inputs(format, &paths).into_iter().zip(["3/7", "3/7", "1/2"]),
        ) {
            let stream = input.into_stream().unwrap();
            let mut start = StreamStart::whole(1);
            (start.partition, start.shuffle) = (rank.parse().unwrap(), shuffle.then_some(5));
            let mut samples = stream.begin(&start).unwrap();
            let mut cursors = Vec::new();
            while samples.next().unwrap().is_some() {
                cursors.push(samples.cursor().unwrap());
            }
            for i in 0..2_000 {
                let mut bytes = cursors[i % cursors.len()].clone();
                if i % 3 == 0 {
                    other_bytes(&mut random, &mut bytes);
                } else {
                    let mut numbers = numbers(&bytes);
                    let at = random.next() as usize % numbers.len();
                    numbers[at] = other_number(&mut random, numbers[at]);
                    bytes = cursor(&numbers);
                }
                start.cursor = Some(bytes.clone());
                let drained = catch_unwind(AssertUnwindSafe(|| {
                    let mut samples = stream.begin(&start)?;
                    for _ in 0..1_000 {
                        match samples.next() {
                            Ok(None) => break,
                            Err(error) if !error.is_bad_sample() => return Err(error),
                            _ => {}
                        }
                        samples.cursor();
                    }
                    Ok(())
                }));
                match drained.unwrap_or_else(|_| panic!("{format:?}, {shuffle}, {rank}: {bytes:x?}")) {
                    Err(error) if error.is_parameter() => refused += 1,
                    Err(error) => {
                        assert!(matches!(error, Error::Stream { .. }), "{error}");
                        failed += 1;
                    }
                    Ok(()) => whole += 1,
                }
            }
        }
    }
    assert!(
        refused > 14_000 && failed > 1_000 && whole > 300,
        "{refused} refused, {failed} failed, {whole} gone on with"
    );
}

/// The number of the shard that a sample of the window is in, of a state whose checksum is right.
#[test]
fn a_shard_that_is_not_there_is_a_damaged_cursor() {
    let folder = tempfile::tempdir().unwrap();
    let paths = small_shards(folder.path(), RecordFormat::WebDataset);
    let [_, (_, shuffled), _] = damaged_inputs(RecordFormat::WebDataset, &paths);
    let stream = shuffled.into_stream().unwrap();
    let mut start = StreamStart::whole(1);
    start.shuffle = Some(5);
    let mut samples = stream.begin(&start).unwrap();
    samples.next().unwrap();
    let mut numbers = numbers(&samples.cursor().unwrap());
    // How many came in, how many stand in the window, and of the first of these the number, the shard, start and
    // length.
    assert_eq!((numbers[0], numbers[1], numbers[3]), (5, 4, 0));
    for shard in [4, 1_000_000, u64::from(u32::MAX)] {
        numbers[3] = shard;
        start.cursor = Some(cursor(&numbers));
        let outcome = stream.begin(&start).and_then(|mut samples| samples.next());
        assert!(outcome.unwrap_err().to_string().contains("cursor must be one that such a stream has given"));
    }
}

/// A stream of five samples that has no cursor.
struct Plain(Vec<u8>);

impl Stream for Plain {
    fn begin(&self, _start: &StreamStart) -> warpfeed::Result<Box<dyn warpfeed::source::Samples>> {
        Ok(Box::new(PlainSamples(vec![self.0.clone(); 5])))
    }
}

struct PlainSamples(Vec<Vec<u8>>);

impl warpfeed::source::Samples for PlainSamples {
    fn next(&mut self) -> warpfeed::Result<Option<warpfeed::source::StreamSample>> {
        let sample = |bytes| warpfeed::source::StreamSample {
            bytes,
            label: Some(0),
            name: "one".to_owned(),
            target: None,
            fields: None,
        };
        Ok(self.0.pop().map(sample))
    }
}

#[test]
fn damaged_states_are_refused_and_cause_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let paths = small_shards(folder.path(), RecordFormat::TfRecord);
    let class = folder.path().join("images/cat");
    fs::create_dir_all(&class).unwrap();
    (0..16).for_each(|i| fs::write(class.join(format!("{i}.jpg")), common::jpeg(24, 20, i)).unwrap());
    let [ordered, shuffled, mixed] = damaged_inputs(RecordFormat::TfRecord, &paths);
    let sets = [&class, &paths[0]].map(|path| (true, open(path).unwrap()));
    let plain = (false, Input::stream(Plain(common::jpeg(24, 20, 1))));
    let mut random = common::Random(3);
    for (kind, (shuffle, input)) in sets.into_iter().chain([plain, ordered, shuffled, mixed]).enumerate() {
        let is_data_set = matches!(input, Input::DataSet(_));
        let builder = in_order(input).threads(0).batch_size(3);
        let pipeline = if shuffle { builder.shuffle(5) } else { builder }.build().unwrap();
        // What the pipeline says to a state: whatever it is, no panic.
        let outcome = |state: &EpochState| match pipeline.resume(state) {
            Ok(mut epoch) => epoch.next().transpose().map(|batch| batch.map(|batch| batch.len())),
            Err(error) => Err(error),
        };
        let mut epoch = pipeline.epoch(2);
        epoch.next().unwrap().unwrap();
        let state = epoch.state();
        assert!(outcome(&state).unwrap().is_some());
        let json = serde_json::to_value(&state).unwrap();
        for position in [1_000_000, 1 << 63, u64::MAX] {
            let mut json = json.clone();
            json["position"] = position.into();
            let error = outcome(&serde_json::from_value(json).unwrap()).unwrap_err();
            assert!(error.is_parameter() && error.to_string().contains(&position.to_string()), "{kind}: {error}");
        }
        for i in 0..3_000 {
            let text = if i % 3 == 0 {
                let mut bytes = json.to_string().into_bytes();
                other_bytes(&mut random, &mut bytes);
                bytes
            } else {
                let mut json = json.clone();
                let fields = ["version", "epoch", "position", "seed", "samples", "partition"];
                let field = &mut json[fields[random.next() as usize % fields.len()]];
                let number = if field.is_array() { &mut field[random.within(0, 1) as usize] } else { field };
                *number = other_number(&mut random, number.as_u64().unwrap()).into();
                json.to_string().into_bytes()
            };
            let Ok(damaged) = serde_json::from_slice::<EpochState>(&text) else { continue };
            let text = String::from_utf8_lossy(&text);
            let got = catch_unwind(AssertUnwindSafe(|| outcome(&damaged)));
            let got = got.unwrap_or_else(|_| panic!("{kind}: {text}"));
            assert!(!matches!(got, Err(Error::Panic { .. })), "{kind}: {text}: {got:?}");
            // A data set has its samples at every position of every epoch.
            let may_go_on = is_data_set || kind == 2;
            assert!(damaged == state || got.is_err() || may_go_on, "{kind}: {text}");
        }
    }
}

#[test]
fn damage_is_a_bad_sample_with_shard_and_offset() {
    for &format in RecordFormat::ALL {
        let (_folder, out) = packed(format);
        let shards = shards(&out);
        let whole = epoch(in_order(open(&out).unwrap()), 0);
        let bytes = fs::read(&shards[1]).unwrap();
        let stream = || {
            let stream = RecordStream::open(format, shards.clone(), StreamOptions::default()).unwrap();
            in_order(stream).on_error(OnError::Skip)
        };
        for cut in [bytes.len() / 2, bytes.len() / 2 + 1, 700, 3] {
            fs::write(&shards[1], &bytes[..cut]).unwrap();
            let pipeline = stream().build().unwrap();
            let mut epoch = pipeline.epoch(0);
            let got: usize = epoch.by_ref().map(|batch| batch.unwrap().len()).sum();
            let bad = epoch.bad();
            assert_eq!(bad.len(), 1, "{format:?} cut at {cut}: {bad:?}");
            let place = format!("{} at byte ", shards[1].display());
            assert!(bad[0].error.contains(&place) && bad[0].error.contains("rest of the shard"), "{bad:?}");
            assert!((1..whole.len()).contains(&got));
            let error = stream().on_error(OnError::Fail).build().unwrap().epoch(0).find_map(Result::err).unwrap();
            assert!(error.is_bad_sample() && error.to_string().contains(&place), "{error}");
        }
        // Flipped bits end in errors or in images, and never in a panic or in giant memory.
        let mut random = common::Random(9);
        for _ in 0..20 {
            let mut flipped = bytes.clone();
            for _ in 0..3 {
                let at = random.next() as usize % flipped.len();
                flipped[at] ^= 1 << random.within(0, 7);
            }
            fs::write(&shards[1], flipped).unwrap();
            assert!(stream().build().unwrap().epoch(0).all(|batch| batch.is_ok()));
        }
    }
}

#[test]
fn what_streams_cannot_do_is_refused() {
    let (_folder, out) = packed(RecordFormat::WebDataset);
    for builder in
        [in_order(streamed(&out, 8)).equal_batches(true), in_order(streamed(&out, 8)).on_error(OnError::Substitute)]
    {
        assert!(matches!(builder.build(), Err(Error::Unsupported { .. })));
    }
    let window = OpenOptions::default().window(Some(0)).open(&out);
    assert!(window.err().unwrap().is_parameter());
    assert!(OpenOptions::default().open("-").err().unwrap().to_string().contains("format"));
    assert!(in_order(streamed(&out, 8)).build().unwrap().recipe(0, 0).is_err());
    // A shard that is missing ends the epoch, whatever the policy.
    let stream = RecordStream::open(RecordFormat::WebDataset, ["gone.tar".into()], StreamOptions::default());
    let pipeline = in_order(stream.unwrap()).on_error(OnError::Skip).build().unwrap();
    let error = pipeline.epoch(0).next().unwrap().unwrap_err();
    assert!(!error.is_bad_sample() && error.to_string().contains("gone.tar broke off at byte 0"), "{error}");
}

#[test]
#[cfg(unix)]
fn a_pipe_is_a_stream() {
    let folder = tempfile::tempdir().unwrap();
    let (_packed, out) = packed(RecordFormat::TfRecord);
    let bytes: Vec<u8> = shards(&out).iter().flat_map(|path| fs::read(path).unwrap()).collect();
    let pipe = folder.path().join("pipe.tfrecord");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::write(pipe, bytes).unwrap()
    });
    let got = epoch(in_order(open(&pipe).unwrap()), 1);
    writer.join().unwrap();
    assert_eq!(got, epoch(in_order(images()), 1));
}

#[test]
#[cfg(target_os = "linux")]
fn a_writer_that_stalls_does_not_hold_up_the_end() {
    use std::io::Write;
    use std::time::Duration;
    let (folder, out) = packed(RecordFormat::TfRecord);
    let pipe = folder.path().join("pipe.tfrecord");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for threads in [1, 2, 5] {
        let pipeline = in_order(open(&pipe).unwrap()).batch_size(1).threads(threads).prefetch(8).build().unwrap();
        let dropped = |epoch: warpfeed::Epoch| {
            // The threads are to wait.
            std::thread::sleep(Duration::from_millis(100));
            // The writer says nothing until this returns.
            drop(epoch);
        };
        // Before it has come.
        dropped(pipeline.epoch(0));
        // When it has written some and does not go away: complete samples come, whoever waits for more.
        let mut epoch = pipeline.epoch(0);
        let mut writer = fs::File::options().write(true).open(&pipe).unwrap();
        let bytes = fs::read(&shards(&out)[0]).unwrap();
        let (mut whole, mut end) = (0, 0);
        while whole < 4 {
            let len = u64::from_le_bytes(*bytes[end..].first_chunk().unwrap());
            (whole, end) = (whole + 1, end + 16 + len as usize);
        }
        writer.write_all(&bytes[..end + 100]).unwrap();
        for _ in 0..whole {
            assert_eq!(epoch.next().unwrap().unwrap().len(), 1);
        }
        dropped(epoch);
    }
}

#[test]
fn a_stream_without_a_sample_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let shard = folder.path().join("empty.tfrecord");
    fs::write(&shard, "").unwrap();
    for threads in [0, 3] {
        let builder = in_order(streamed(&shard, 5)).on_error(OnError::Skip).threads(threads);
        let error = builder.build().unwrap().epoch(0).next().unwrap().unwrap_err();
        assert!(error.to_string().contains("the stream") || error.to_string().contains("stream must be"), "{error}");
    }
}

#[test]
fn the_command_reads_standard_input() {
    use std::process::{Command, Stdio};
    let (_folder, out) = packed(RecordFormat::RecordIo);
    let bytes: Vec<u8> = shards(&out).iter().flat_map(|path| fs::read(path).unwrap()).collect();
    let all = out.with_file_name("all.rec");
    fs::write(&all, bytes).unwrap();
    let run = |args: &[&str], input: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_warpfeed"));
        command.args(["run", "--json", "--digest", "--no-shuffle"]).args(args).stdin(input);
        command.output().unwrap()
    };
    let digest = |args: &[&str], input| {
        let report = common::report(&run(args, input));
        assert_eq!(report["images"], 50);
        report["digest"].as_str().unwrap().to_owned()
    };
    let want = digest(&[out.to_str().unwrap()], Stdio::null());
    let input = || Stdio::from(fs::File::open(&all).unwrap());
    assert_eq!(digest(&["-", "--format", "recordio"], input()), want);
    assert_eq!(digest(&[all.to_str().unwrap(), "--window", "5"], Stdio::null()), want);
    for (args, code) in [(&["-"][..], 2), (&["-", "--format", "recordio", "--epochs", "2"], 2)] {
        assert_eq!(run(args, input()).status.code(), Some(code), "{args:?}");
    }
}
