//! Numbers of an image's channels, as parameters of operations.

use crate::error::{Error, Result};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use warpfeed_image::planes::MAX_CHANNELS;

/// Largest number of different lists of a process. They stay in memory, so that parameters can be copied.
const MAX_LISTS: usize = 10_000;

/// A number for all channels of an image, or one for each.
///
/// ```
/// use warpfeed::ops::ChannelNumbers;
///
/// let mean = ChannelNumbers::new(&[0.1, 0.2, 0.3, 0.4])?;
/// assert_eq!((mean.of(3), ChannelNumbers::from(0.5).of(3)), (0.4, 0.5));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct ChannelNumbers(Numbers);

#[derive(Clone, Copy)]
enum Numbers {
    One([f32; 1]),
    Three([f32; 3]),
    List(&'static [f32]),
}

impl ChannelNumbers {
    /// Zero for all channels.
    pub const ZERO: Self = Self(Numbers::One([0.0]));

    /// One number for all channels, or one for each.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there are none, or more than [`MAX_CHANNELS`]; [`Error::Limits`] after 10,000 different
    /// lists in one process.
    pub fn new(numbers: &[f32]) -> Result<Self> {
        Ok(Self(match *numbers {
            [one] => Numbers::One([one]),
            [a, b, c] => Numbers::Three([a, b, c]),
            [] => {
                let expected = format!("1 to {MAX_CHANNELS} numbers");
                return Err(Error::parameter("ChannelNumbers::new", "numbers", expected, "none"));
            }
            _ => Numbers::List(kept(numbers)?),
        }))
    }

    /// One number for each of red, green and blue.
    #[must_use]
    pub const fn rgb(numbers: [f32; 3]) -> Self {
        Self(Numbers::Three(numbers))
    }

    /// The numbers: one, or one for each channel.
    #[must_use]
    pub fn as_slice(&self) -> &[f32] {
        match &self.0 {
            Numbers::One(one) => one,
            Numbers::Three(three) => three,
            Numbers::List(list) => list,
        }
    }

    /// The number of a channel.
    #[must_use]
    pub fn of(&self, channel: usize) -> f32 {
        let numbers = self.as_slice();
        numbers[channel.min(numbers.len() - 1)]
    }

    /// The numbers of red, green and blue.
    #[inline]
    pub(crate) fn three(&self) -> [f32; 3] {
        match self.0 {
            Numbers::Three(three) => three,
            _ => [0, 1, 2].map(|channel| self.of(channel)),
        }
    }

    /// Whether there is one number, or one for each of an image's channels. Equal numbers count as one.
    pub(crate) fn fit(&self, channels: u16) -> bool {
        let numbers = self.as_slice();
        numbers.len() == usize::from(channels) || numbers.iter().all(|number| *number == numbers[0])
    }
}

/// A list that stays in memory. Equal lists are kept once.
fn kept(numbers: &[f32]) -> Result<&'static [f32]> {
    static LISTS: Mutex<Option<HashSet<&'static [u32]>>> = Mutex::new(None);
    if numbers.len() > usize::from(MAX_CHANNELS) {
        let expected = format!("1 to {MAX_CHANNELS} numbers");
        return Err(Error::parameter("ChannelNumbers::new", "numbers", expected, numbers.len()));
    }
    let bits: &[u32] = bytemuck::cast_slice(numbers);
    let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    let lists = lists.get_or_insert_default();
    let list = match lists.get(bits) {
        Some(list) => *list,
        None if lists.len() >= MAX_LISTS => {
            return Err(Error::Limits {
                what: "the number of different lists of numbers for channels",
                got: lists.len() as u64 + 1,
                limit: MAX_LISTS as u64,
                remedy: "use the same numbers again, or one number for all channels",
            });
        }
        None => {
            let list: &'static [u32] = bits.to_vec().leak();
            lists.insert(list);
            list
        }
    };
    Ok(bytemuck::cast_slice(list))
}

impl From<f32> for ChannelNumbers {
    fn from(number: f32) -> Self {
        Self(Numbers::One([number]))
    }
}

impl From<[f32; 3]> for ChannelNumbers {
    fn from(numbers: [f32; 3]) -> Self {
        Self::rgb(numbers)
    }
}

impl PartialEq for ChannelNumbers {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Default for ChannelNumbers {
    fn default() -> Self {
        Self::ZERO
    }
}

impl fmt::Debug for ChannelNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl Serialize for ChannelNumbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_slice() {
            [one] => one.serialize(serializer),
            list => list.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for ChannelNumbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number, or a list with a number for each channel")]
        enum Written {
            One(f32),
            List(Vec<f32>),
        }
        match Written::deserialize(deserializer)? {
            Written::One(number) => Ok(number.into()),
            Written::List(list) => Self::new(&list).map_err(D::Error::custom),
        }
    }
}

/// Numbers of channels, each 0 to 63, in some order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ChannelList {
    /// Unused places are 0.
    channels: [u8; MAX_CHANNELS as usize],
    len: u8,
}

impl ChannelList {
    /// A list of up to 64 channels.
    ///
    /// # Errors
    /// [`Error::Parameter`] if there are none, or more.
    pub fn new(list: &[u8]) -> Result<Self> {
        let mut channels = [0; MAX_CHANNELS as usize];
        match channels.get_mut(..list.len()) {
            Some(to) if !list.is_empty() => to.copy_from_slice(list),
            _ => {
                let expected = format!("1 to {MAX_CHANNELS} channels");
                return Err(Error::parameter("ChannelList::new", "list", expected, list.len()));
            }
        }
        Ok(Self { channels, len: list.len() as u8 })
    }

    /// The channels in order.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.channels[..usize::from(self.len)]
    }

    /// The channels that become red, green and blue, if there are three.
    pub(crate) fn rgb(&self) -> Option<[u8; 3]> {
        self.as_slice().try_into().ok()
    }
}

impl From<[u8; 3]> for ChannelList {
    fn from([red, green, blue]: [u8; 3]) -> Self {
        let mut channels = [0; MAX_CHANNELS as usize];
        (channels[0], channels[1], channels[2]) = (red, green, blue);
        Self { channels, len: 3 }
    }
}

impl fmt::Debug for ChannelList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl Serialize for ChannelList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_slice().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ChannelList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&Vec::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_one_or_a_list() {
        let read = |text| serde_json::from_str::<ChannelNumbers>(text);
        for (text, of_2) in [("0.5", 0.5), ("[1.0,2.0,3.5]", 3.5), ("[1.0,2.0,-3.0,4.0]", -3.0)] {
            let numbers = read(text).unwrap();
            assert_eq!((numbers.of(2), serde_json::to_string(&numbers).unwrap().as_str()), (of_2, text));
        }
        let list: Vec<f32> = (0..70).map(|i| i as f32).collect();
        assert!(ChannelNumbers::new(&list).is_err() && ChannelNumbers::new(&[]).is_err() && read("[]").is_err());
        let (a, b) = (ChannelNumbers::new(&list[..13]).unwrap(), ChannelNumbers::new(&list[..13]).unwrap());
        assert_eq!((a, a.as_slice().as_ptr()), (b, b.as_slice().as_ptr()), "kept once");
        assert!(a.fit(13) && !a.fit(12) && ChannelNumbers::from(2.0).fit(7) && ChannelNumbers::rgb([1.0; 3]).fit(7));
    }

    #[test]
    fn lists_of_channels_are_bounded() {
        let list: ChannelList = serde_json::from_str("[3,0,12,1]").unwrap();
        assert_eq!((list.as_slice(), list.rgb()), (&[3, 0, 12, 1][..], None));
        assert_eq!(serde_json::to_string(&list).unwrap(), "[3,0,12,1]");
        assert!(ChannelList::new(&[]).is_err() && ChannelList::new(&[0; 65]).is_err());
        assert_eq!(ChannelList::from([2, 1, 0]).rgb(), Some([2, 1, 0]));
    }
}
