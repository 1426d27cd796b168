//! Trains a small detector with candle on the CPU, and prints its mAP@0.5: `train_detector [DIR] [--short]`, with the
//! feature `candle`.
//!
//! DIR has the folders `train` and `valid`, each with `images` and COCO's `annotations.json`, which the program makes
//! if necessary; `--short` makes few and trains 16 steps. Set `RAYON_NUM_THREADS=1`, because candle's threads do not
//! sleep.
//!
//! Each cell of 8 x 8 pixels predicts how much it is the center of an object of each class (CenterNet,
//! arXiv:1904.07850), and the distances to the sides of its object (FCOS, arXiv:1904.01355).

mod training;

use candle_core::{DType as CandleType, Device, Tensor};
use candle_nn::{ModuleT, VarBuilder, VarMap, ops::sigmoid};
use std::slice;
use training::layers::{Convolution, Pixelwise};
use training::{candle, open};
use warpfeed::Result;
use warpfeed::fields::{BatchFields, BoxFormat};
use warpfeed::ops::{FixedSizeCrop, Letterbox, ScaleJitter};
use warpfeed::prelude::*;

const SIDE_PX: u32 = 112;
const CELL_PX: f32 = 8.0;
/// Cells of a row of the image.
const CELLS: usize = 14;
/// Color of pixels outside of the image.
const GRAY: [u8; 3] = [114; 3];
const BATCH: usize = 8;
/// Width of the bell around an object's center, as a share of the object's sides.
const BELL: f32 = 0.15;
/// Least height of the bell where a cell learns the sides of the object.
const LEAST_BELL: f32 = 0.3;

/// The layers that see the image: 64 channels at an eighth of its sides.
struct Backbone {
    /// To a half, a quarter and an eighth of the sides.
    down: [Convolution; 4],
    /// Convolutions that each add to their input.
    deep: [Convolution; 4],
}

impl Backbone {
    /// A backbone for images of three channels.
    fn new(weights: &VarBuilder) -> candle_core::Result<Self> {
        let layer = |name, inputs, outputs, stride| Convolution::new(inputs, outputs, stride, &weights.pp(name));
        Ok(Self {
            down: [
                layer("down-0", 3, 16, 2)?,
                layer("down-1", 16, 32, 2)?,
                layer("down-2", 32, 32, 1)?,
                layer("down-3", 32, 64, 2)?,
            ],
            deep: [
                layer("deep-0", 64, 64, 1)?,
                layer("deep-1", 64, 64, 1)?,
                layer("deep-2", 64, 64, 1)?,
                layer("deep-3", 64, 64, 1)?,
            ],
        })
    }

    /// The features `[64, N, H / 8, W / 8]` of images `[N, 3, H, W]`.
    fn forward(&self, images: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        let x = self.down.iter().try_fold(images.transpose(0, 1)?, |x, layer| layer.forward_t(&x, train))?;
        self.deep.iter().try_fold(x, |x, layer| &x + layer.forward_t(&x, train)?)
    }
}

struct Network {
    backbone: Backbone,
    scores: Pixelwise,
    sides: Pixelwise,
}

impl Network {
    fn new(classes: usize, weights: &VarBuilder) -> candle_core::Result<Self> {
        Ok(Self {
            backbone: Backbone::new(&weights.pp("backbone"))?,
            // A start at which few cells are centers, and sides are 8 pixels away.
            scores: Pixelwise::new(64, classes, -3.0, &weights.pp("scores"))?,
            sides: Pixelwise::new(64, 4, 2.0, &weights.pp("sides"))?,
        })
    }

    /// The logits of the classes `[classes, N * cells]`, and the distances of the left, upper, right and lower side in
    /// pixels `[4, N * cells]`, of images `[N, 3, H, W]`.
    fn forward(&self, images: &Tensor, train: bool) -> candle_core::Result<(Tensor, Tensor)> {
        let cells = self.backbone.forward(images, train)?;
        Ok((self.scores.forward(&cells)?, self.sides.forward(&cells)?.clamp(-4.0, 5.0)?.exp()?))
    }
}

/// An object, found or true: XYXY in pixels.
#[derive(Clone)]
struct Object {
    image: usize,
    class: usize,
    place: [f32; 4],
    score: f32,
}

/// The values that a batch's cells should have.
struct Goal {
    /// Nearness of a cell to the center of an object of each class, 0 to 1: `[classes, N * cells]`.
    scores: Vec<f32>,
    /// The cells that learn an object's sides, with their weights and the distances of the sides in pixels.
    cells: Vec<u32>,
    weights: Vec<f32>,
    sides: [Vec<f32>; 4],
}

/// The objects of a batch.
fn objects_of(fields: &BatchFields) -> Result<Vec<Object>> {
    let rows = fields.boxes(BoxFormat::Xyxy)?.into_iter().zip(fields.integers("labels")?).zip(fields.batch_indices());
    let object = |((place, label), image)| Object { image: image as usize, class: label as usize, place, score: 1.0 };
    Ok(rows.map(object).collect())
}

/// The center of cell `i` of a row or column, in pixels.
fn center(i: usize) -> f32 {
    (i as f32 + 0.5) * CELL_PX
}

impl Goal {
    fn new(objects: &[Object], images: usize, classes: usize) -> Self {
        let count = images * CELLS * CELLS;
        let mut scores = vec![0.0_f32; classes * count];
        // The highest bell over each cell, and its object.
        let mut highest = vec![(0.0_f32, 0); count];
        for (number, Object { image, class, place: [left, top, right, bottom], .. }) in objects.iter().enumerate() {
            let bell = |i: usize, low: f32, high: f32| {
                // Measured from the center of the cell in which the object's center lies, which so has the height 1.
                let middle = center((0.5 * (low + high) / CELL_PX).min(CELLS as f32 - 1.0) as usize);
                (-0.5 * ((center(i) - middle) / (BELL * (high - low)).max(1.0)).powi(2)).exp()
            };
            for (y, x) in (0..CELLS).flat_map(|y| (0..CELLS).map(move |x| (y, x))) {
                let (cell, height) = ((image * CELLS + y) * CELLS + x, bell(x, *left, *right) * bell(y, *top, *bottom));
                let score = &mut scores[class * count + cell];
                *score = score.max(height);
                if height > highest[cell].0 {
                    highest[cell] = (height, number);
                }
            }
        }
        let (mut cells, mut weights, mut sides) = (vec![], vec![], [const { Vec::new() }; 4]);
        for (cell, (height, number)) in highest.into_iter().enumerate() {
            let ([left, top, right, bottom], x, y) =
                (objects.get(number).map_or([0.0; 4], |o| o.place), center(cell % CELLS), center(cell / CELLS % CELLS));
            let distances = [x - left, y - top, right - x, bottom - y];
            if height >= LEAST_BELL && distances.iter().all(|distance| *distance > 0.0) {
                cells.push(cell as u32);
                weights.push(height);
                sides.iter_mut().zip(distances).for_each(|(side, distance)| side.push(distance));
            }
        }
        Self { scores, cells, weights, sides }
    }

    /// The quality focal loss of the scores (arXiv:2006.04388), and the generalized IoU loss of the sides
    /// (arXiv:1902.09630).
    fn loss(self, scores: &Tensor, sides: &Tensor) -> candle_core::Result<Tensor> {
        let device = scores.device();
        let goal = Tensor::from_vec(self.scores, scores.shape(), device)?;
        let entropy = ((scores.relu()? - (scores * &goal)?)? + (scores.abs()?.neg()?.exp()? + 1.0)?.log()?)?;
        let focus = (sigmoid(scores)? - &goal)?.sqr()?.detach();
        let centers = (entropy * focus)?.sum_all()? / self.weights.iter().sum::<f32>().max(1.0) as f64;
        if self.cells.is_empty() {
            return centers;
        }
        let count = self.cells.len();
        let found = sides.index_select(&Tensor::from_vec(self.cells, count, device)?, 1)?;
        let truth = Tensor::from_vec(self.sides.concat(), (4, count), device)?;
        let area = |sides: &Tensor| (sides.get(0)? + sides.get(2)?)? * (sides.get(1)? + sides.get(3)?)?;
        let (both, around) = (area(&found.minimum(&truth)?)?, area(&found.maximum(&truth)?)?);
        let union = ((area(&found)? + area(&truth)?)? - &both)?;
        let overlap = ((both / &union)? - ((&around - &union)? / &around)?)?;
        let total = f64::from(self.weights.iter().sum::<f32>());
        let weights = Tensor::from_vec(self.weights, count, device)?;
        centers + (((1.0 - overlap)? * weights)?.sum_all()? / total)?
    }
}

/// Intersection over union of two rectangles.
fn overlap(a: &[f32; 4], b: &[f32; 4]) -> f32 {
    let side = |low: usize| (a[low + 2].min(b[low + 2]) - a[low].max(b[low])).max(0.0);
    let area = |place: &[f32; 4]| (place[2] - place[0]) * (place[3] - place[1]);
    let both = side(0) * side(1);
    both / (area(a) + area(b) - both)
}

/// The objects that the network has found in images: cells with a score above 0.05, without those that overlap a better
/// one of the same class by more than half.
fn found(scores: &Tensor, sides: &Tensor) -> candle_core::Result<Vec<Object>> {
    let (scores, sides) = (sigmoid(scores)?.to_vec2::<f32>()?, sides.to_vec2::<f32>()?);
    let mut objects: Vec<Object> = Vec::new();
    for (class, scores) in scores.iter().enumerate() {
        let mut cells: Vec<usize> = (0..scores.len()).filter(|cell| scores[*cell] > 0.05).collect();
        cells.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let first = objects.len();
        for cell in cells {
            let (image, x, y) = (cell / (CELLS * CELLS), center(cell % CELLS), center(cell / CELLS % CELLS));
            let [left, top, right, bottom] = [0, 1, 2, 3].map(|side| sides[side][cell]);
            let place = [x - left, y - top, x + right, y + bottom].map(|at| at.clamp(0.0, SIDE_PX as f32));
            if objects[first..].iter().all(|better| better.image != image || overlap(&better.place, &place) <= 0.5) {
                objects.push(Object { image, class, place, score: scores[cell] });
            }
        }
    }
    Ok(objects)
}

/// Average precision of one class at an IoU of 0.5, as in Pascal VOC since 2010: the area under the curve of the best
/// precision at each recall or a higher one.
fn average_precision(found: &[Object], truth: &[Object], class: usize) -> f64 {
    let mut found: Vec<&Object> = found.iter().filter(|object| object.class == class).collect();
    found.sort_by(|a, b| b.score.total_cmp(&a.score));
    let truth: Vec<&Object> = truth.iter().filter(|object| object.class == class).collect();
    let mut taken = vec![false; truth.len()];
    let mut right = 0;
    // Whether each object found is right, and the precision so far, from the best on.
    let mut curve = Vec::with_capacity(found.len());
    for (i, object) in found.iter().enumerate() {
        // An object is true once: whatever overlaps it again is wrong.
        let overlaps = truth.iter().enumerate().filter(|(_, other)| other.image == object.image);
        let best = overlaps.map(|(at, other)| (at, overlap(&other.place, &object.place)));
        let hit = match best.max_by(|a, b| a.1.total_cmp(&b.1)) {
            Some((at, share)) if share >= 0.5 && !taken[at] => {
                taken[at] = true;
                true
            }
            _ => false,
        };
        right += u32::from(hit);
        curve.push((hit, f64::from(right) / (i + 1) as f64));
    }
    let (mut best, mut area) = (0.0_f64, 0.0);
    for (hit, precision) in curve.into_iter().rev() {
        best = best.max(precision);
        area += if hit { best } else { 0.0 };
    }
    area / truth.len() as f64
}

/// Average precision of each class.
fn evaluate(network: &Network, pipeline: &Pipeline, classes: usize) -> Result<Vec<f64>> {
    let (mut all_found, mut all_true, mut images_before) = (Vec::new(), Vec::new(), 0);
    for batch in pipeline.epoch(0) {
        let batch = batch?;
        let mut truth = batch.fields(0).map(objects_of).transpose()?.unwrap_or_default();
        let images = batch.into_images().into_candle(&Device::Cpu)?;
        let mut found =
            network.forward(&images, false).and_then(|(scores, sides)| found(&scores, &sides)).map_err(candle)?;
        truth.iter_mut().chain(&mut found).for_each(|object| object.image += images_before);
        images_before += images.dims()[0];
        all_found.append(&mut found);
        all_true.append(&mut truth);
    }
    Ok((0..classes).map(|class| average_precision(&all_found, &all_true, class)).collect())
}

fn main() -> Result<()> {
    let (short, folder) = training::arguments("train-detector");
    let (images, held_out, epochs) = if short { (32, 16, 4) } else { (3000, 300, 8) };
    let train = open(&folder.join("train"), images, 1)?;
    let valid = open(&folder.join("valid"), held_out, 2)?;
    let names = train.classes().to_vec();

    let train = Pipeline::builder(train)
        .fields(["boxes", "labels"])
        .batch_size(BATCH)
        .shuffle(42)
        .last_batch(LastBatch::Drop)
        .transform(ScaleJitter::new(SIDE_PX).scale(0.8..=1.25))
        .transform(FixedSizeCrop::new(SIDE_PX).fill(GRAY))
        .transform(random_horizontal_flip(0.5))
        .normalize(IMAGENET_MEAN, IMAGENET_STD)
        .build()?;
    let valid = Pipeline::builder(valid)
        .fields(["boxes", "labels"])
        .batch_size(BATCH)
        .sanitize(false)
        .transform(Letterbox::new(SIDE_PX).fill(GRAY))
        .normalize(IMAGENET_MEAN, IMAGENET_STD)
        .build()?;

    let weights = VarMap::new();
    let network = Network::new(names.len(), &VarBuilder::from_varmap(&weights, CandleType::F32, &Device::Cpu));
    let mut network = network.map_err(candle)?;
    training::train(&weights, slice::from_mut(&mut network), &train, epochs, |network, batch| {
        let objects = batch.fields(0).map(objects_of).transpose()?.unwrap_or_default();
        let goal = Goal::new(&objects, batch.len(), names.len());
        let images = batch.into_images().into_candle(&Device::Cpu)?;
        let of_batch = || {
            let (scores, sides) = network.forward(&images, true)?;
            let loss = goal.loss(&scores, &sides)?;
            let value = loss.to_scalar::<f32>()?;
            Ok((loss, value))
        };
        of_batch().map_err(candle)
    })?;
    let precisions = evaluate(&network, &valid, names.len())?;
    for (name, precision) in names.iter().zip(&precisions) {
        println!("{name}: AP {precision:.3}");
    }
    println!("mAP@0.5 {:.3} on {held_out} images", precisions.iter().sum::<f64>() / precisions.len() as f64);
    Ok(())
}
