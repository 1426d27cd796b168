//! Boxes at the edges of images: rounding drops no object.

use super::super::*;
use crate::fields::{BoxFormat, Boxes, Clamping, Field, Fields};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// Boxes for each operation.
const BOXES: usize = 100_000;

/// Boxes inside an image, many of them at its edges.
fn boxes(rng: &mut ChaCha8Rng, size: Size, count: usize) -> Vec<[f32; 4]> {
    let mut side = |side: u32| -> [f32; 2] {
        let side = side as f32;
        let mut place = || match rng.random_range(0..4) {
            0 => 0.0,
            1 => side,
            2 => rng.random_range(0..=side as u32) as f32,
            _ => rng.random_range(0.0..=side),
        };
        let (a, b) = (place(), place());
        [a.min(b), a.max(b)]
    };
    (0..count)
        .map(|_| {
            let ([x1, x2], [y1, y2]) = (side(size.width), side(size.height));
            [x1, y1, x2, y2]
        })
        .collect()
}

/// The objects that operations leave, and whether the box of each lies inside by comparison alone.
fn left(fields: &Fields, ops: &[Op], size: Size) -> (Vec<i64>, Vec<bool>) {
    let (mut fields, mut dropped) = (fields.clone(), DroppedObjects::default());
    let before = fields.objects();
    let size = ops.iter().try_fold(size, |size, op| op.move_and_count(&mut fields, size, &mut dropped)).unwrap();
    assert_eq!(dropped.total() as usize, before - fields.objects(), "each object is counted once");
    let inside =
        |[x1, y1, x2, y2]: [f32; 4]| x1 >= 0.0 && y1 >= 0.0 && x2 <= size.width as f32 && y2 <= size.height as f32;
    let valid = fields.boxes().unwrap().corners().map(inside).collect();
    let Some(Field::Integers(numbers)) = fields.get("labels") else { panic!("{fields:?}") };
    (numbers.clone(), valid)
}

fn has(numbers: &[i64], number: &i64) -> bool {
    numbers.binary_search(number).is_ok()
}

/// Objects that `clamp` before `sanitize` keeps, `sanitize` keeps too.
#[test]
fn no_box_inside_the_image_is_lost_by_rounding() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let sizes = [Size::new(178, 131), Size::new(333, 500), Size::new(1023, 767), Size::new(61, 37)];
    let (mut names, mut saved) = (std::collections::BTreeMap::<&str, usize>::new(), 0);
    for size in sizes {
        // These move no box across an edge.
        let still = [Hflip.into(), Vflip.into(), Grayscale.into()];
        let resizes = [224, 300, 640].map(|side| Op::from(Resize::new(Size::new(side, side))));
        let still: Vec<Op> = still.into_iter().chain(resizes).collect();
        let all: Vec<Op> = Op::examples(size).into_iter().chain(still.iter().cloned()).collect();
        for op in &all {
            let drops = matches!(op, Op::Sanitize(_) | Op::SelectObjects(_) | Op::KeepObjects(_));
            if drops || op.joins() {
                continue;
            }
            let name = op.name();
            for format in [BoxFormat::Xyxy, BoxFormat::Xywh, BoxFormat::Cxcywh] {
                let count = BOXES.div_ceil(3 * sizes.len() * all.iter().filter(|other| other.name() == name).count());
                *names.entry(name).or_default() += count;
                let given = Boxes::new(BoxFormat::Xyxy, boxes(&mut rng, size, count)).to(format);
                let given = Fields::new().with("boxes", given).unwrap();
                let given = given.with("labels", (0..count as i64).collect::<Vec<_>>()).unwrap();
                let sanitize = Op::from(Sanitize::new());
                let (kept, _) = left(&given, &[op.clone(), sanitize.clone()], size);
                let (clamped, _) = left(&given, &[op.clone(), Clamp.into(), sanitize.clone()], size);
                assert!(clamped.iter().all(|number| has(&kept, number)), "{op:?}, {format:?}");
                let (all, inside) = left(&given, std::slice::from_ref(op), size);
                saved += all.iter().zip(inside).filter(|(number, inside)| !inside && has(&clamped, number)).count();
                if still.contains(op) {
                    let unclamped = given.boxes().unwrap().clone().with_clamping(Clamping::None);
                    let given = given.clone().with("boxes", unclamped).unwrap();
                    let (kept, _) = left(&given, &[op.clone(), sanitize], size);
                    assert!(clamped.iter().all(|number| has(&kept, number)), "{op:?}, {format:?}");
                }
            }
        }
    }
    assert!(names.len() >= 35 && names.values().all(|boxes| *boxes >= BOXES), "{names:?}");
    assert!(saved > 1000, "{saved} boxes alone are outside by rounding");
}
