//! The names of shards.

use crate::source::RecordFormat;

/// The name of shard `i` until all shards are complete.
pub(super) fn hidden_name(format: RecordFormat, name: &str, i: usize) -> String {
    match format {
        RecordFormat::WebDataset => format!("{name}-{i:06}.tar"),
        RecordFormat::RecordIo => format!("{name}-{i:06}.rec"),
        // The final name contains the number of shards, which is known only at the end.
        RecordFormat::TfRecord => format!(".{name}-{i:05}.tfrecord"),
    }
}

/// The name of RecordIO's index file of shard `i`.
pub(super) fn index_name(name: &str, i: usize) -> String {
    format!("{name}-{i:06}.idx")
}

/// The name of shard `i` of `count`.
pub(super) fn final_name(format: RecordFormat, name: &str, i: usize, count: usize) -> String {
    match format {
        RecordFormat::TfRecord => format!("{name}-{i:05}-of-{count:05}.tfrecord"),
        _ => hidden_name(format, name, i),
    }
}

/// Whether `file` is the name of a shard of the folder `name`, or of a shard's index file, whatever the number of
/// shards.
pub(super) fn is_name(format: RecordFormat, name: &str, file: &str) -> bool {
    let is_number = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let behind = |file: &str, ending| file.strip_prefix(name)?.strip_prefix('-')?.strip_suffix(ending).map(is_number);
    let found = match format {
        RecordFormat::WebDataset => behind(file, ".tar"),
        RecordFormat::RecordIo => behind(file, ".rec").or_else(|| behind(file, ".idx")),
        RecordFormat::TfRecord => match file.strip_prefix('.') {
            Some(hidden) => behind(hidden, ".tfrecord"),
            None => file
                .rsplit_once("-of-")
                .and_then(|(shard, count)| Some(behind(shard, "")? && is_number(count.strip_suffix(".tfrecord")?))),
        },
    };
    found.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_known_by_their_names() {
        for format in [RecordFormat::WebDataset, RecordFormat::RecordIo, RecordFormat::TfRecord] {
            for i in [0, 7, 1_234_567] {
                assert!(is_name(format, "train", &hidden_name(format, "train", i)));
                assert!(is_name(format, "train", &final_name(format, "train", i, 2_000_000)));
                assert!(!is_name(format, "val", &final_name(format, "train", i, 2_000_000)));
            }
            for other in ["train.tar", "train-.tar", "train-1a.tar", "train-000001.zip", "train-000001-of-x.tfrecord"] {
                assert!(!is_name(format, "train", other), "{other}");
            }
        }
        assert!(is_name(RecordFormat::RecordIo, "train", &index_name("train", 1)));
    }
}
