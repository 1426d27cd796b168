//! Classifies images with ONNX Runtime: the program of docs/serving.md, with which a test compares it.

use ort::{session::Session, value::TensorRef};
use warpfeed::{Preprocessor, PreprocessorOptions, hugging_face_ops};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "MODEL.onnx preprocessor_config.json IMAGE...";
    let (model, config) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let images = arguments.map(std::fs::read).collect::<Result<Vec<_>, _>>()?;
    let ops = hugging_face_ops(&std::fs::read_to_string(config)?)?;
    let preprocessor = Preprocessor::new(ops, &PreprocessorOptions::default().max_batch(images.len()))?;
    let mut session = Session::builder()?.commit_from_file(model)?;

    let batch = preprocessor.run(&images.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
    let input = TensorRef::from_array_view((batch.shape(), batch.as_slice::<f32>()?))?; // without a copy
    let outputs = session.run(ort::inputs![input])?;
    let (_, scores) = outputs[0].try_extract_tensor::<f32>()?;
    for row in scores.chunks_exact(scores.len() / images.len()) {
        let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]));
        println!("class {best:?} of {}", row.len());
    }
    Ok(())
}
