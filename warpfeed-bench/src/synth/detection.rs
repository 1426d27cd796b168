//! Scenes for detection and segmentation, with COCO's annotations of the visible parts of objects.

use super::SynthSettings;
use super::scene::{Look, Noise, Object, image, size};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use warpfeed::Result;
use warpfeed::image::{Image, Size};
use warpfeed::internal::atomic;
use warpfeed::internal::{Domain, SampleRng};

/// The names of the kinds of objects, in the order of their numbers.
pub(super) const KINDS: [&str; 6] = ["disc", "box", "triangle", "ring", "cross", "diamond"];
/// The file of annotations in a folder.
const ANNOTATIONS: &str = "annotations.json";
/// Most objects of an image.
const MOST_OBJECTS: u64 = 7;
/// Places that are tried for an object.
const TRIES: u32 = 8;
/// The share of an object's pixels that others leave in view.
const LEAST_VISIBLE: f64 = 0.4;
/// Least pixels of an object in an image of usual size.
const LEAST_PX: f64 = 150.0;

/// The objects of an image, and which of them each pixel shows.
struct Layout {
    draw: SampleRng,
    size: Size,
    look: Look,
    /// Each hides those before it.
    objects: Vec<Object>,
    /// For each pixel the number of its object from 1 on, or 0 for the ground.
    shown: Vec<u8>,
}

/// An object that is seen: the rectangle around its pixels (left, top, width, height), their number, and their run
/// lengths down the columns.
struct Seen {
    rect: [usize; 4],
    area: usize,
    runs: Vec<usize>,
}

impl Layout {
    fn new(settings: &SynthSettings, index: u64) -> Self {
        // Other random numbers than those of the class folders' images.
        let mut draw = SampleRng::new(settings.seed, 1, Domain::Synth, index);
        let times = settings.times();
        let size = size(draw.at(0), times);
        let look = Look::new(draw.at(2).below(1000) as u32, 1000, &mut draw);
        let mut layout = Self { draw, size, look, objects: Vec::new(), shown: vec![0; size.area_px() as usize] };
        let (wanted, mut areas) = (1 + layout.draw.at(3).below(MOST_OBJECTS), vec![]);
        for _ in 0..wanted * u64::from(TRIES) {
            if layout.objects.len() as u64 == wanted {
                break;
            }
            let kind = layout.draw.below(settings.classes.into()) as u32;
            let object = Object::new(&layout.look, size, times, &mut layout.draw).of_kind(kind);
            layout.add(object, &mut areas, LEAST_PX * times * times);
        }
        layout
    }

    /// Adds an object, unless too little would be seen of it or of another. `areas` has the number of pixels of each
    /// object inside the image, and of those in view.
    fn add(&mut self, object: Object, areas: &mut Vec<[u32; 2]>, least_px: f64) {
        let pixels = object.pixels(self.size);
        let mut hidden = vec![0; areas.len()];
        for &at in &pixels {
            if let Some(before) = self.shown[at].checked_sub(1) {
                hidden[usize::from(before)] += 1;
            }
        }
        let visible =
            |(hidden, [all, seen]): (&u32, &[u32; 2])| f64::from(seen - hidden) >= LEAST_VISIBLE * f64::from(*all);
        if (pixels.len() as f64) < least_px || !hidden.iter().zip(&*areas).all(visible) {
            return;
        }
        areas.iter_mut().zip(hidden).for_each(|([_, seen], hidden)| *seen -= hidden);
        areas.push([pixels.len() as u32; 2]);
        self.objects.push(object);
        let number = self.objects.len() as u8;
        pixels.into_iter().for_each(|at| self.shown[at] = number);
    }

    /// The visible part of each object.
    fn seen(&self) -> Vec<Seen> {
        let (width, height) = (self.size.width as usize, self.size.height as usize);
        let mut around = vec![[usize::MAX, usize::MAX, 0, 0]; self.objects.len()];
        for (at, number) in self.shown.iter().enumerate().filter(|(_, number)| **number > 0) {
            let ([left, top, right, bottom], x, y) = (&mut around[usize::from(*number) - 1], at % width, at / width);
            (*left, *top, *right, *bottom) = (x.min(*left), y.min(*top), (x + 1).max(*right), (y + 1).max(*bottom));
        }
        let of = |(number, [left, top, right, bottom]): (u8, [usize; 4])| {
            let (mut runs, mut end) = (Vec::new(), 0);
            for x in left..right {
                for y in (top..bottom).filter(|y| self.shown[y * width + x] == number) {
                    let place = x * height + y;
                    if place > end || runs.is_empty() {
                        runs.extend([place - end, 0]);
                    }
                    if let Some(run) = runs.last_mut() {
                        *run += 1;
                    }
                    end = place + 1;
                }
            }
            let area = runs.iter().skip(1).step_by(2).sum();
            if end < width * height {
                runs.push(width * height - end);
            }
            Seen { rect: [left, top, right - left, bottom - top], area, runs }
        };
        (1..).zip(around).map(of).collect()
    }

    /// The annotations of all objects of image `index`, each after a comma and a line break.
    fn annotations(&self, index: u64) -> String {
        let mut text = String::new();
        let Size { width, height } = self.size;
        for (i, (object, Seen { rect, area, runs })) in self.objects.iter().zip(self.seen()).enumerate() {
            let id = index * MOST_OBJECTS + i as u64 + 1;
            let (image, category) = (index + 1, object.kind + 1);
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                ",\n{{\"id\":{id},\"image_id\":{image},\"category_id\":{category},\"bbox\":{rect:?},\"area\":{area},\
                 \"iscrowd\":0,\"segmentation\":{{\"size\":[{height},{width}],\"counts\":{runs:?}}}}}"
            );
        }
        text
    }
}

/// The name of image `index`.
pub(super) fn file_name(index: u64) -> String {
    format!("{index:06}.jpg")
}

/// Image `index`.
pub(super) fn image_of(settings: &SynthSettings, index: u64) -> Image {
    let mut layout = Layout::new(settings, index);
    let noise = Noise::new(layout.draw.at(1));
    let seed = layout.draw.at(4).bits() as u32;
    image(layout.size, settings.times(), &noise, &layout.look, &layout.objects, seed)
}

/// Writes the annotations of all images in COCO's form.
///
/// # Errors
/// [`Error::Io`](warpfeed::Error::Io) if they cannot be written.
pub(super) fn write_annotations(folder: &Path, settings: &SynthSettings) -> Result<()> {
    atomic::write(&folder.join(ANNOTATIONS), |file| {
        write!(file, "{{\"info\":{{\"description\":\"made by warpfeed synth\"}},\n\"categories\":[")?;
        for (i, kind) in KINDS.iter().enumerate().take(settings.classes as usize) {
            write!(file, "{}{{\"id\":{},\"name\":\"{kind}\"}}", if i == 0 { "" } else { "," }, i + 1)?;
        }
        write!(file, "],\n\"images\":[")?;
        for index in 0..settings.count {
            let mut draw = SampleRng::new(settings.seed, 1, Domain::Synth, index);
            let (Size { width, height }, name) = (size(draw.at(0), settings.times()), file_name(index));
            let (comma, id) = (if index == 0 { "" } else { "," }, index + 1);
            write!(file, "{comma}\n{{\"id\":{id},\"file_name\":\"{name}\",\"width\":{width},\"height\":{height}}}")?;
        }
        write!(file, "],\n\"annotations\":[")?;
        let mut is_first = true;
        for text in (0..settings.count).map(|index| Layout::new(settings, index).annotations(index)) {
            file.write_all(if is_first { text.trim_start_matches(',') } else { &text }.as_bytes())?;
            is_first &= text.is_empty();
        }
        writeln!(file, "]}}")
    })
}
