//! Assignments of other systems, from the folder that `WARPFEED_SHARED` names, and a few of them that always run.

use super::*;
use crate::raster::Size;
use serde_json::Value;
use std::path::PathBuf;

fn of(text: &str) -> Buckets {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn size(of: &Value) -> Size {
    Size::new(of[0].as_u64().unwrap() as u32, of[1].as_u64().unwrap() as u32)
}

pub(super) fn lines(name: &str) -> Vec<Value> {
    let shared = PathBuf::from(std::env::var_os("WARPFEED_SHARED").expect("WARPFEED_SHARED names a folder"));
    let text = std::fs::read_to_string(shared.join("reference/shapes").join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn listed(sizes: &Value) -> String {
    let sizes = sizes.as_array().unwrap().iter().map(size);
    sizes.map(|Size { width, height }| format!("{width}x{height}")).collect::<Vec<_>>().join(",")
}

/// The buckets of a line of the reference, as they are written.
fn written(line: &Value) -> String {
    let config = &line["config"];
    let number = |name: &str| config[name].as_u64().unwrap();
    match line["system"].as_str().unwrap() {
        "kohya" => format!(
            "kohya={}x{},step={},sides={}..{}",
            number("width"),
            number("height"),
            number("step"),
            number("min"),
            number("max")
        ),
        "kohya_no_upscale" => format!("kohya-no-upscale={},step={}", number("area").isqrt(), number("step")),
        "novelai" => "novelai".to_owned(),
        "diffusers_list" if listed(&config["buckets"]) == listed_flux() => "flux".to_owned(),
        "diffusers_list" => format!("{},nearest=cross", listed(&config["buckets"])),
        "diffusers_auto" => format!("diffusers={},step={}", number("side"), number("step")),
        "diffusion_pipe" => format!("diffusion-pipe={}", number("side")),
        "ai_toolkit" => format!("ai-toolkit={},step={}", number("side"), number("step")),
        "pixart" => format!("{},nearest=inverse-rounded", listed(&config["buckets"])),
        "mosaic" => format!("{},nearest=inverse-single", listed(&config["buckets"])),
        other => panic!("{other}"),
    }
}

fn listed_flux() -> String {
    let all: Vec<String> = buckets::FLUX.iter().map(|(width, height)| format!("{width}x{height}")).collect();
    all.join(",")
}

#[test]
#[ignore = "needs WARPFEED_SHARED, a folder with reference/; scripts/test runs it where that is set"]
fn shared_assignments_of_other_systems() {
    let mut compared = 0;
    for line in lines("bucket-rules.jsonl") {
        let text = written(&line);
        let buckets = of(&text);
        for row in line["rows"].as_array().unwrap() {
            let [image, bucket, resized] =
                [0, 2, 4].map(|at| size(&Value::Array(row.as_array().unwrap()[at..at + 2].to_vec())));
            let (found, none) = (buckets.bucket(image), Size::new(0, 0));
            if resized == none || bucket == none {
                assert_eq!(found.unwrap_or(none), bucket, "{text}: {image}");
            } else {
                let presets = !text.contains("nearest");
                assert_eq!(found, Some(bucket), "{text}: {image}");
                assert!(!presets || buckets.covering(image, bucket) == resized, "{text}: {image}");
            }
            compared += 1;
        }
    }
    assert_eq!(compared, 13 * 160);
}

#[test]
#[ignore = "needs WARPFEED_SHARED, a folder with reference/; scripts/test runs it where that is set"]
fn shared_assignments_of_the_model() {
    for line in lines("bucket-model.jsonl").iter().filter(|line| line["kind"] == "assign") {
        let text = listed(&line["buckets"]);
        let (buckets, sizes) = (of(&text), line["buckets"].as_array().unwrap());
        for row in line["rows"].as_array().unwrap() {
            let row: Vec<u32> = row.as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as u32).collect();
            let (image, bucket) = (Size::new(row[0], row[1]), size(&sizes[row[2] as usize]));
            assert_eq!(buckets.bucket(image), Some(bucket), "{text}: {image}");
            assert_eq!(buckets.covering(image, bucket), Size::new(row[3], row[4]), "{text}: {image}");
        }
    }
}

/// The sizes that the reference makes for a set of this number.
fn made_sizes(number: u64, count: u64) -> Vec<Size> {
    const PHOTOGRAPHS: [(u32, u32); 8] =
        [(500, 375), (500, 333), (375, 500), (333, 500), (640, 480), (500, 500), (800, 600), (400, 300)];
    let mut state = number * 1_000_003 + 17;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (a, b, c) = ((state >> 48) % 1000, (state >> 32) % 1000, (state >> 20) % 1000);
        let (width, height) = match number % 3 {
            0 => PHOTOGRAPHS[(a * a / 125_001) as usize],
            1 => {
                let side = 64 + 8_000_000 / (1000 + a * 40);
                let long = side * (1 + b * b / 150_000);
                let (width, height) = if c % 2 == 1 { (long, side) } else { (side, long) };
                ((width + b % 97) as u32, (height + c % 89) as u32)
            }
            _ => (1 + a as u32 * 4, 1 + b as u32 * 4),
        };
        Size::new(width, height)
    };
    (0..count).map(|_| next()).collect()
}

#[test]
#[ignore = "needs WARPFEED_SHARED, a folder with reference/; scripts/test runs it where that is set"]
fn shared_units_of_the_model() {
    let all = lines("bucket-model.jsonl");
    let ladder = |name: &Value| all.iter().find(|line| line["kind"] == "assign" && line["ladder"] == *name).unwrap();
    for line in all.iter().filter(|line| line["kind"] == "epoch") {
        let number = |name: &str| line[name].as_u64().unwrap();
        let sizes = made_sizes(number("number"), number("samples"));
        let first = line["first_sizes"].as_array().unwrap();
        assert!(first.iter().map(size).eq(sizes.iter().copied().take(first.len())));
        let text = listed(&ladder(&line["ladder"])["buckets"]);
        let unit = number("world_size") * number("batch_size");
        let assigned = of(&text).assign(sizes.iter().copied().map(Some), |_| unit).unwrap();
        let counts = |assigned: &Assignment| {
            let mut counts = vec![0_u64; assigned.buckets.len()];
            for index in 0..sizes.len() as u64 {
                let Fate::Bucket(bucket) = assigned.fate(index) else { panic!("no image is lost") };
                counts[usize::from(bucket)] += 1;
            }
            counts
        };
        let want: Vec<u64> = line["counts"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
        assert_eq!(counts(&assigned), want);
        for (name, remainder) in [("drop", Remainder::Dropped), ("keep", Remainder::Kept), ("pad", Remainder::Padded)] {
            let (cut, policy) = (Cut { unit, ranks: number("world_size"), remainder }, &line["policies"][name]);
            let of = |count: &u64| cut.of(*count);
            let units: Vec<u64> = want.iter().map(|count| of(count).0).collect();
            let listed: Vec<u64> = policy["units"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
            assert_eq!(units, listed);
            assert_eq!(want.iter().map(|count| of(count).2).sum::<u64>(), policy["repeated"].as_u64().unwrap());
            assert_eq!(want.iter().map(|count| cut.dropped(*count)).sum::<u64>(), policy["dropped"].as_u64().unwrap());
        }
        let merged = of(&format!("{text},merge")).assign(sizes.iter().copied().map(Some), |_| unit).unwrap();
        let kept: Vec<Size> = line["pruned_to_a_unit"].as_array().unwrap().iter().map(size).collect();
        assert_eq!(merged.buckets, kept, "{text}");
    }
}

#[test]
fn assignments_are_those_of_the_systems() {
    // Some of the sizes in which systems differ, each as the system's own code assigns it.
    for (text, image, bucket) in [
        ("sdxl", (500, 375), (1152, 896)),
        ("kohya", (500, 375), (576, 448)),
        ("kohya", (512, 512), (512, 512)),
        ("kohya-no-upscale", (500, 375), (448, 320)),
        ("novelai", (500, 333), (768, 512)),
        ("flux", (375, 500), (880, 1184)),
        ("diffusers", (500, 375), (496, 368)),
        ("diffusion-pipe", (500, 375), (576, 464)),
        ("ai-toolkit", (500, 375), (512, 384)),
        ("pixart", (500, 375), (1152, 832)),
    ] {
        let (image, bucket) = (Size::new(image.0, image.1), Size::new(bucket.0, bucket.1));
        assert_eq!(of(text).bucket(image), Some(bucket), "{text}");
    }
    assert_eq!(of("novelai").bucket(Size::new(8000, 250)), None);
    assert_eq!(of("kohya-no-upscale").bucket(Size::new(63, 4096)), None);
    assert_eq!(of("area=1024x1024,sides=512..2048"), Buckets::area(1024).sides(512..=2048));
}

#[test]
fn images_are_not_enlarged_if_that_is_asked_for() {
    let buckets = of("512x512,1024x1024,no-upscale");
    assert_eq!(buckets.bucket(Size::new(600, 600)), Some(Size::new(512, 512)));
    assert_eq!(buckets.bucket(Size::new(2000, 1200)), Some(Size::new(1024, 1024)));
    assert_eq!(buckets.bucket(Size::new(511, 2000)), None);
}

#[test]
fn wrong_texts_are_refused() {
    for text in [
        "",
        "sdx",
        "0x5",
        "512x512,512x512",
        "512x512,step=8",
        "area=1024x1024,step=0",
        "area=70000x70000",
        "sdxl=3",
        "sdxl,sides=1..2",
        "sdxl,nearest=far",
        "sdxl,min-samples=x",
        "ai-toolkit=2x3",
        "100000x5",
    ] {
        assert!(text.parse::<Buckets>().is_err(), "{text}");
    }
}

#[test]
fn every_covering_size_covers() {
    let mut state = 7_u64;
    let mut side = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1 + ((state >> 33) % most) as u32
    };
    for text in
        ["sdxl", "flux", "kohya", "kohya-no-upscale", "novelai", "diffusers", "diffusion-pipe", "ai-toolkit", "pixart"]
    {
        let buckets = of(text);
        for _ in 0..2_000 {
            let image = Size::new(side(4000), side(4000));
            let Some(bucket) = buckets.bucket(image) else { continue };
            let covering = buckets.covering(image, bucket);
            assert!(covering.width >= bucket.width && covering.height >= bucket.height, "{text}: {image}");
        }
    }
}
