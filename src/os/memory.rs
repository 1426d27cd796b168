//! Allocation that can fail with this crate's error and a remedy.

use crate::error::{Error, Result};
use bytemuck::Zeroable;
use std::collections::VecDeque;
use warpfeed_image::memory;
pub(crate) use warpfeed_image::memory::FEWER_IMAGES;

/// Remedy if a batch's memory is refused.
pub(crate) const SMALLER_BATCHES: &str =
    "use a smaller batch_size or prefetch, fewer threads, or allow more memory (ulimit -v, or the container's limit)";

/// The error for refused memory of `what`.
pub(crate) fn refused<T>(what: &'static str, len: usize, remedy: &'static str) -> Error {
    memory::refused::<T>(what, len, remedy).into()
}

/// `len` zeros. The system provides their pages when they are first touched.
///
/// # Errors
/// [`Error::OutOfMemory`] if the memory is refused.
pub(crate) fn zeros<T: Zeroable>(len: usize, what: &'static str, remedy: &'static str) -> Result<Vec<T>> {
    Ok(memory::zeros(len, what, remedy)?)
}

/// Reserves room in `buffer` for `len` elements. If the memory must be moved, the content is lost.
///
/// # Errors
/// [`Error::OutOfMemory`] if the memory is refused.
pub fn reserve<T>(buffer: &mut Vec<T>, len: usize, what: &'static str, remedy: &'static str) -> Result<()> {
    Ok(memory::reserve(buffer, len, what, remedy)?)
}

/// Extends `buffer` to `len` bytes with zeros.
///
/// # Errors
/// [`Error::OutOfMemory`] if the memory is refused.
pub(crate) fn lengthen(buffer: &mut Vec<u8>, len: usize, what: &'static str, remedy: &'static str) -> Result<()> {
    Ok(memory::lengthen(buffer, len, what, remedy)?)
}

/// The sizes that were requested of a pool lately. They decide which memory it keeps.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The classes of the last requests, the oldest first.
    last: VecDeque<u8>,
    most: usize,
    /// Number of these requests of each class.
    of_class: [u32; CLASSES],
}

/// Number of classes of sizes: two for each power of two.
const CLASSES: usize = 2 * usize::BITS as usize;

/// The class of a size.
fn class(len_bytes: usize) -> usize {
    let len_bytes = len_bytes.max(2);
    let power = len_bytes.ilog2();
    // The second bit decides between the two classes.
    2 * power as usize + (len_bytes >> (power - 1) & 1)
}

impl Asked {
    /// Remembers the last `most` requests.
    pub(crate) fn of_last(most: usize) -> Self {
        Self { last: VecDeque::new(), most: most.max(1), of_class: [0; CLASSES] }
    }

    /// The largest memory that a request of `len_bytes` bytes takes while smaller memory can be allocated.
    pub(crate) fn most_for(len_bytes: usize) -> usize {
        len_bytes.max(512).saturating_mul(2)
    }

    /// Notes a request.
    pub(crate) fn note(&mut self, len_bytes: usize) {
        if self.last.len() >= self.most
            && let Some(oldest) = self.last.pop_front()
        {
            self.of_class[usize::from(oldest)] -= 1;
        }
        let class = class(len_bytes);
        self.last.push_back(class as u8);
        self.of_class[class] += 1;
    }

    /// Index of the piece of memory, of these sizes, that is largest compared with the requests: a piece that is larger
    /// than those requested. If there is none, the largest.
    pub(crate) fn surplus(&self, lens: impl Iterator<Item = usize> + Clone) -> Option<usize> {
        let mut of_class = [0_u32; CLASSES];
        lens.clone().for_each(|len| of_class[class(len)] += 1);
        let (mut kept, mut asked) = (0, 0);
        let surplus = (0..CLASSES).rev().find(|&class| {
            (kept, asked) = (kept + of_class[class], asked + self.of_class[class]);
            kept > asked
        });
        match surplus {
            Some(surplus) => lens.clone().position(|len| class(len) == surplus),
            None => lens.enumerate().max_by_key(|&(_, len)| len).map(|(at, _)| at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_memory_is_an_error_that_no_policy_skips() {
        let error = zeros::<u64>(1 << 57, "a batch", SMALLER_BATCHES).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { bytes: 0x1000_0000_0000_0000, .. }), "{error:?}");
        assert!(!error.is_bad_sample());
        assert!(error.to_string().contains("batch_size"), "{error}");
    }

    /// Allocations whose length is a number of pixels, or was read from data, end the process if they fail, unless they
    /// are made by this module, or after its `reserve`.
    #[test]
    fn lengths_from_data_are_allocated_with_an_error() {
        /// Parts of lines that are none of these.
        const KNOWN: &[&str] = &[
            // Images that the program itself makes, of fixed sizes.
            "src/preset/mod.rs: let masks = [vec![1_u8",
            "src/preset/mod.rs: .with(MASK, Mask::new(size, vec![1_u8",
            // After `reserve`.
            "src/fields/carried.rs: made.resize(len_bytes, 0)",
            "src/source/records/mod.rs: buffer.resize(len_bytes, 0)",
        ];
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut folders = vec![root.join("src"), root.join("warpfeed-image/src")];
        let (mut found, mut files) = (Vec::new(), 0);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
                // What measures makes its own images.
                let is_tool =
                    ["src/experiment", "measure", "tests.rs", "testing"].iter().any(|part| name.contains(part));
                if is_tool || name == "src/os/memory.rs" || name == "warpfeed-image/src/memory.rs" {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                files += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
                for line in code.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
                    let allocates = ["vec![", "with_capacity(", ".resize(", ".resize_with("].iter().any(|call| {
                        line.split_once(call).is_some_and(|(_, length)| {
                            ["area_px", "len_px", "len_bytes", "pixels().len()", "max_px"]
                                .iter()
                                .any(|of| length.contains(of))
                        })
                    });
                    let line = format!("{name}: {line}");
                    if allocates && !KNOWN.iter().any(|known| line.starts_with(known)) {
                        found.push(line);
                    }
                }
            }
        }
        assert!(files > 200, "{files}");
        assert!(found.is_empty(), "use crate::os::memory for these, or reserve before:\n{}", found.join("\n"));
    }
}
