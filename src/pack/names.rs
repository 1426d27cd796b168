//! The names of shards.

use crate::source::RecordFormat;

/// The name of shard `i` until all shards are complete.
pub(super) fn hidden_name(format: RecordFormat, name: &str, i: usize) -> String {
    let ending = format.facts().endings[0];
    // The number of shards is known only at the end.
    if format.facts().names_have_count { format!(".{name}-{i:05}.{ending}") } else { format!("{name}-{i:06}.{ending}") }
}

/// The name of the index file of shard `i`.
pub(super) fn index_name(name: &str, i: usize) -> String {
    format!("{name}-{i:06}.idx")
}

/// The name of shard `i` of `count`.
pub(super) fn final_name(format: RecordFormat, name: &str, i: usize, count: usize) -> String {
    if !format.facts().names_have_count {
        return hidden_name(format, name, i);
    }
    format!("{name}-{i:05}-of-{count:05}.{}", format.facts().endings[0])
}

/// Whether `file` is the name of a shard of the folder `name`, or of a shard's index file, whatever the number of
/// shards.
pub(super) fn is_name(format: RecordFormat, name: &str, file: &str) -> bool {
    let is_number = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_numbered =
        |file: &str| file.strip_prefix(name).and_then(|file| file.strip_prefix('-')).is_some_and(is_number);
    let facts = format.facts();
    let Some((stem, ending)) = file.rsplit_once('.') else { return false };
    let (is_shard, is_index) = (ending == facts.endings[0], facts.has_index && ending == "idx");
    if !facts.names_have_count {
        return (is_shard || is_index) && is_numbered(stem);
    }
    is_shard
        && match (stem.strip_prefix('.'), stem.rsplit_once("-of-")) {
            (Some(hidden), _) => is_numbered(hidden),
            (None, Some((shard, count))) => is_numbered(shard) && is_number(count),
            (None, None) => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_known_by_their_names() {
        for &format in RecordFormat::ALL {
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
