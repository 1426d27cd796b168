//! Classifies images with tract: the program of docs/serving.md, with which a test compares it.

use tract_onnx::prelude::*;
use warpfeed::{Preprocessor, PreprocessorOptions, hugging_face_ops};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "MODEL.onnx preprocessor_config.json IMAGE...";
    let (model, config) = (arguments.next().ok_or(usage)?, arguments.next().ok_or(usage)?);
    let images = arguments.map(std::fs::read).collect::<Result<Vec<_>, _>>()?;
    let ops = hugging_face_ops(&std::fs::read_to_string(config)?)?;
    let preprocessor = Preprocessor::new(ops, &PreprocessorOptions::default().max_batch(images.len()))?;

    let batch = preprocessor.run(&images.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
    let input = Tensor::from_shape(&batch.shape(), batch.as_slice::<f32>()?)?; // tract's memory is its own: one copy
    let model = tract_onnx::onnx().model_for_path(model)?;
    let model =
        model.with_input_fact(0, input.datum_type().fact(input.shape()).into())?.into_optimized()?.into_runnable()?;
    let outputs = model.run(tvec![input.into()])?;
    for row in outputs[0].to_plain_array_view::<f32>()?.outer_iter() {
        let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(class, _)| class);
        println!("class {best:?} of {}", row.len());
    }
    Ok(())
}
