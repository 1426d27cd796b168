//! Scenes: the ground, the objects on it, and the camera's image.

use warpfeed::image::{Image, Size};
use warpfeed::internal::SampleRng;

/// The finest detail in larger images, in pixels. Lenses and the interpolation of a sensor's colors draw no finer.
const LENS_PX: f64 = 3.0;

/// Side of the square grid of random numbers that all noise is interpolated from.
const NOISE_SIDE: usize = 128;

/// The image of a scene, whose sides are `times` those of usual images. `seed`: the grain's.
pub(super) fn image(size: Size, times: f64, noise: &Noise, look: &Look, objects: &[Object], seed: u32) -> Image {
    let mut scene = Scene { size, times, colors: Vec::new(), texture: Vec::new() };
    scene.background(look, noise);
    objects.iter().for_each(|object| scene.place(object, look.light));
    let grain = if times > 1.0 { 0.5 * look.grain } else { look.grain };
    scene.develop(grain, seed)
}

/// Draws a size like those of photographs on the web: most are 500 pixels wide and 4:3, some 3:2 or nearly square, and
/// a third are in portrait format. All sides are `times` as long.
pub(super) fn size(draw: &mut SampleRng, times: f64) -> Size {
    let aspect = match draw.below(10) {
        0..6 => 4.0 / 3.0,
        6..8 => 1.5,
        _ => draw.uniform(1.0, 1.25),
    };
    let area_px = 0.5 * (draw.uniform(120_000.0, 280_000.0) + draw.uniform(130_000.0, 270_000.0));
    let short = times * (area_px / aspect).sqrt();
    let size = Size::new((short * aspect) as u32, short as u32);
    if draw.chance(0.3) { size.transposed() } else { size }
}

/// The look of one image.
pub(super) struct Look {
    /// The two colors of the ground.
    ground: [[f32; 3]; 2],
    object_hue: f64,
    /// Direction of the texture: sine and cosine.
    direction: (f64, f64),
    /// Depth of the texture, and the factor from each octave to the next finer one.
    texture: f32,
    roughness: f32,
    /// Change of brightness across and down the image.
    light: [f32; 2],
    /// Strength of the grain, in steps of 1/255.
    grain: f32,
    kind: u32,
}

impl Look {
    pub(super) fn new(class: u32, classes: u32, draw: &mut SampleRng) -> Self {
        let place = f64::from(class) / f64::from(classes.max(1));
        let hue = place + draw.uniform(-0.03, 0.03);
        // Classes of similar hue get quite different directions: steps of the golden section of half a turn.
        let angle = core::f64::consts::PI * (f64::from(class) * 0.618_033_988_75 + draw.uniform(-0.06, 0.06));
        let dark = hsv(hue, draw.uniform(0.35, 0.75), draw.uniform(0.25, 0.5));
        let bright = hsv(hue + draw.uniform(-0.08, 0.08), draw.uniform(0.15, 0.5), draw.uniform(0.6, 0.9));
        Self {
            ground: [dark, bright],
            object_hue: hue + 0.5 + draw.uniform(-0.15, 0.15),
            direction: libm::sincos(angle),
            texture: draw.uniform(0.55, 1.2) as f32,
            roughness: draw.uniform(0.74, 1.15) as f32,
            light: [draw.uniform(-0.5, 0.5) as f32, draw.uniform(-0.6, 0.3) as f32],
            grain: draw.uniform(4.0, 12.0) as f32,
            kind: class % 6,
        }
    }
}

/// Red, green and blue of a color given by hue, saturation and value, each 0 to 1 (the hue wraps around).
fn hsv(hue: f64, saturation: f64, value: f64) -> [f32; 3] {
    [5.0, 3.0, 1.0].map(|turn| {
        let sixth = turn + 6.0 * (hue - hue.floor());
        let sixth = sixth - if sixth >= 6.0 { 6.0 } else { 0.0 };
        let depth = sixth.min(4.0 - sixth).clamp(0.0, 1.0);
        (value * (1.0 - saturation * depth)) as f32
    })
}

/// Value noise: random numbers on a grid, smoothly interpolated in fixed point.
pub(super) struct Noise {
    grid: Vec<i16>,
    /// `3 t^2 - 2 t^3` in 256 steps.
    smooth: [i32; 256],
}

/// A field of noise over an image: its start, and the distance from pixel to pixel, in 1/65536 of the grid.
struct Field {
    start: [i32; 2],
    right: [i32; 2],
    down: [i32; 2],
}

impl Field {
    /// Noise with these periods along and across a direction.
    fn new((sin, cos): (f64, f64), along_px: f64, across_px: f64, octave: i32) -> Self {
        let fixed = |v: f64| (v * 65536.0) as i32;
        Self {
            // Octaves must not share grid points: otherwise their sum would show the grid.
            start: [fixed(f64::from(octave) * 17.37), fixed(f64::from(octave) * 29.71)],
            right: [fixed(cos / along_px), fixed(-sin / across_px)],
            down: [fixed(sin / along_px), fixed(cos / across_px)],
        }
    }
}

impl Noise {
    pub(super) fn new(draw: &mut SampleRng) -> Self {
        let words = std::iter::repeat_with(|| draw.bits()).take(NOISE_SIDE * NOISE_SIDE / 4);
        let grid = words.flat_map(|w| [w as i16, (w >> 16) as i16, (w >> 32) as i16, (w >> 48) as i16]).collect();
        let smooth = std::array::from_fn(|t| {
            let t = t as i32;
            (t * t * (3 * 256 - 2 * t)) >> 16
        });
        Self { grid, smooth }
    }

    /// Adds `amplitude` times row `y` of a field, whose values are -1 to 1, to `row`.
    fn add(&self, field: &Field, y: u32, amplitude: f32, row: &mut [f32]) {
        const MASK: usize = NOISE_SIDE - 1;
        let grid: &[i16; NOISE_SIDE * NOISE_SIDE] = self.grid[..].try_into().expect("the grid has this size");
        let start = |axis: usize| field.start[axis].wrapping_add(field.down[axis].wrapping_mul(y as i32));
        let (mut u, mut v) = (start(0), start(1));
        let scale = amplitude / 32768.0;
        for value in row {
            let (x, y) = ((u >> 16) as usize & MASK, (v >> 16) as usize & MASK);
            let (fx, fy) = (self.smooth[(u >> 8) as usize & 255], self.smooth[(v >> 8) as usize & 255]);
            let at = |x: usize, y: usize| i32::from(grid[(y & MASK) * NOISE_SIDE + (x & MASK)]);
            let upper = at(x, y) * (256 - fx) + at(x + 1, y) * fx;
            let lower = at(x, y + 1) * (256 - fx) + at(x + 1, y + 1) * fx;
            let mixed = (upper >> 8) * (256 - fy) + (lower >> 8) * fy;
            *value += (mixed >> 8) as f32 * scale;
            u = u.wrapping_add(field.right[0]);
            v = v.wrapping_add(field.right[1]);
        }
    }
}

/// Maps `edge0` to `edge1` to 0 to 1, smoothly.
fn smoothstep(edge0: f32, edge1: f32, x: f32) -> f32 {
    let t = ((x - edge0) / (edge1 - edge0)).clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

/// An unfinished image: light as red, green and blue, 0 to about 1, and the depth of the texture for each pixel.
struct Scene {
    size: Size,
    /// Factor from the sides of usual images to those of this one.
    times: f64,
    colors: Vec<[f32; 3]>,
    texture: Vec<f32>,
}

impl Scene {
    fn background(&mut self, look: &Look, noise: &Noise) {
        let Size { width, height } = self.size;
        let long = f64::from(width.max(height));
        let upright = (0.0, 1.0);
        let places: Vec<Field> =
            (0..2).map(|o| Field::new(upright, long / [2.3, 5.9][o], long / [2.3, 5.9][o], 20 + o as i32)).collect();
        let masks: Vec<Field> =
            (0..2).map(|o| Field::new(upright, long / [3.1, 9.7][o], long / [3.1, 9.7][o], 30 + o as i32)).collect();
        let mut octaves = Vec::new();
        let (mut period, mut amplitude) = (40.0 * self.times, 1.0_f32);
        for octave in 0..6 {
            if self.times > 1.0 && period < LENS_PX {
                break;
            }
            octaves.push((Field::new(look.direction, period * 2.5, period, octave), amplitude));
            (period, amplitude) = (period * 0.53, amplitude * look.roughness);
        }
        // Detail that usual images are too small for: the finer, the fainter.
        for octave in 6.. {
            if period < LENS_PX {
                break;
            }
            octaves.push((Field::new(look.direction, period * 2.5, period, octave), amplitude));
            (period, amplitude) = (period * 0.53, amplitude * 0.53);
        }
        // Independent octaves are summed, so their variances add up.
        let power: f32 = octaves.iter().map(|(_, a)| a * a).sum();
        let texture = look.texture / power.sqrt();
        let (mut place, mut mask, mut rough) =
            (vec![0.0; width as usize], vec![0.0; width as usize], vec![0.0; width as usize]);
        for y in 0..height {
            for row in [&mut place, &mut mask, &mut rough] {
                row.fill(0.0);
            }
            for (octave, amplitude) in [0.75, 0.35].into_iter().enumerate() {
                noise.add(&places[octave], y, amplitude, &mut place);
                noise.add(&masks[octave], y, amplitude, &mut mask);
            }
            for (field, amplitude) in &octaves {
                noise.add(field, y, amplitude * texture, &mut rough);
            }
            let down = (y as f32 + 0.5) / height as f32 - 0.5;
            for (x, ((place, mask), rough)) in place.iter().zip(&mask).zip(&rough).enumerate() {
                let across = (x as f32 + 0.5) / width as f32 - 0.5;
                let light = 1.0 + look.light[0] * across + look.light[1] * down;
                let depth = rough * (0.2 + 0.8 * smoothstep(-0.35, 0.45, *mask));
                let mix = smoothstep(-0.6, 0.6, *place);
                let [dark, bright] = look.ground;
                let shade = light * (1.0 + 0.6 * depth).max(0.05);
                self.colors.push([0, 1, 2].map(|c| (dark[c] + (bright[c] - dark[c]) * mix) * shade));
                self.texture.push(*rough);
            }
        }
    }

    /// Puts an object and its shadow into the scene.
    fn place(&mut self, object: &Object, light: [f32; 2]) {
        let Size { width, height } = self.size;
        let away = object.radius * 0.15;
        let shadow = [object.center[0] - away * (1.0 + light[0]), object.center[1] + away];
        let reach = object.radius * 1.5 + away * 3.0;
        let span = |center: f32, len: u32| {
            ((center - reach).clamp(0.0, len as f32) as u32, (center + reach).clamp(0.0, len as f32) as u32)
        };
        let ((left, right), (top, bottom)) = (span(object.center[0], width), span(object.center[1], height));
        for y in top..bottom {
            for x in left..right {
                let point = [x as f32 + 0.5, y as f32 + 0.5];
                let at = y as usize * width as usize + x as usize;
                let shade = smoothstep(away * 1.5, -away * 1.5, object.distance(point, shadow));
                let cover = smoothstep(object.soft, -object.soft, object.distance(point, object.center));
                // Objects are lit from above, and each has its own roughness.
                let turn = (object.center[1] - point[1] + (point[0] - object.center[0]) * light[0]) / object.radius;
                let lit = (0.85 + 0.3 * turn) * (1.0 + object.texture * self.texture[at]).max(0.05);
                for (value, color) in self.colors[at].iter_mut().zip(object.color) {
                    *value *= 1.0 - 0.45 * shade;
                    *value += (color * lit - *value) * cover;
                }
            }
        }
    }

    /// Adds grain, compresses highlights softly, and rounds to eight bits.
    fn develop(&self, grain: f32, seed: u32) -> Image {
        let mut image = Image::new(self.size);
        // Xorshift (Marsaglia 2003): one word per pixel; two bytes and two half bytes of it are used.
        let mut word = seed | 1;
        let step = grain / 255.0 / 104.5;
        for (pixel, color) in image.pixels_mut().iter_mut().zip(&self.colors) {
            word ^= word << 13;
            word ^= word >> 17;
            word ^= word << 5;
            let [a, b, c, d] = word.to_le_bytes().map(f32::from);
            // The sum of two bytes has a standard deviation of 104.5. Color noise is weaker.
            let all = a + b - 255.0;
            let own = [0.35 * (c - 127.5), -0.2 * (c + d - 255.0), 0.35 * (d - 127.5)];
            for channel in 0..3 {
                let value = color[channel] + step * (all + own[channel]);
                let value = if value > 0.8 { 1.0 - 0.04 / (value - 0.6) } else { value };
                pixel[channel] = (value * 255.0 + 0.5) as u8;
            }
        }
        image
    }
}

/// An object in the scene.
pub(super) struct Object {
    pub(super) kind: u32,
    center: [f32; 2],
    radius: f32,
    /// Sine and cosine of its rotation.
    turn: (f32, f32),
    color: [f32; 3],
    texture: f32,
    /// Half the width of its soft edge in pixels.
    soft: f32,
}

impl Object {
    pub(super) fn new(look: &Look, size: Size, times: f64, draw: &mut SampleRng) -> Self {
        let short = f64::from(size.width.min(size.height));
        let (sin, cos) = libm::sincos(draw.uniform(0.0, core::f64::consts::TAU));
        Self {
            kind: look.kind,
            center: [
                (f64::from(size.width) * draw.uniform(0.1, 0.9)) as f32,
                (f64::from(size.height) * draw.uniform(0.15, 0.9)) as f32,
            ],
            radius: (short * draw.uniform(0.08, 0.26)) as f32,
            turn: (sin as f32, cos as f32),
            color: hsv(look.object_hue + draw.uniform(-0.06, 0.06), draw.uniform(0.3, 0.85), draw.uniform(0.4, 0.95)),
            texture: draw.uniform(0.1, 0.7) as f32,
            soft: (times * draw.uniform(0.7, 3.5)) as f32,
        }
    }

    /// This object with another outline.
    pub(super) fn of_kind(self, kind: u32) -> Self {
        Self { kind, ..self }
    }

    /// The places of the object's pixels in an image, row by row, as if nothing hid it.
    pub(super) fn pixels(&self, size: Size) -> Vec<usize> {
        let span = |center: f32, len: u32| {
            let reach = self.radius * 1.6;
            ((center - reach).clamp(0.0, len as f32) as u32)..((center + reach).clamp(0.0, len as f32) as u32)
        };
        let (columns, rows) = (span(self.center[0], size.width), span(self.center[1], size.height));
        let places = rows.flat_map(|y| columns.clone().map(move |x| (x, y)));
        let own = |&(x, y): &(u32, u32)| self.distance([x as f32 + 0.5, y as f32 + 0.5], self.center) < 0.0;
        places.filter(own).map(|(x, y)| y as usize * size.width as usize + x as usize).collect()
    }

    /// Approximate distance of `point` from the object's outline in pixels, positive outside. `center`: the object's
    /// center.
    fn distance(&self, point: [f32; 2], center: [f32; 2]) -> f32 {
        let (dx, dy) = (point[0] - center[0], point[1] - center[1]);
        let (sin, cos) = self.turn;
        let (x, y) = (cos * dx + sin * dy, cos * dy - sin * dx);
        let radius = self.radius;
        let round = || (x * x + y * y).sqrt();
        match self.kind {
            0 => round() - radius,
            1 => x.abs().max(y.abs() * 1.4) - radius * 0.9,
            2 => (y * 0.5 + x.abs() * 0.866_025_4).max(-y) - radius * 0.6,
            3 => (round() - radius * 0.75).abs() - radius * 0.25,
            4 => (x.abs().min(y.abs()) - radius * 0.3).max(x.abs().max(y.abs()) - radius),
            _ => (x.abs() + y.abs() * 0.6) * 0.857_492_9 - radius * 0.8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hues_go_round() {
        for (hue, want) in [(0.0, [1.0, 0.0, 0.0]), (1.0 / 3.0, [0.0, 1.0, 0.0]), (-1.0 / 3.0, [0.0, 0.0, 1.0])] {
            let got = hsv(hue, 1.0, 1.0);
            assert!(got.iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-6), "{hue}: {got:?}");
        }
        assert_eq!(hsv(0.7, 0.0, 0.25), [0.25; 3]);
        assert_eq!(hsv(1.25, 0.5, 0.5), hsv(0.25, 0.5, 0.5));
    }
}
