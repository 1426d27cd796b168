//! Random programs, ordered by cudarc's events, give the right results in any schedule.

#![cfg(target_os = "linux")]

mod common;

use common::{Mistake, expected, kernel, loader, one_block, start};
use cudarc::driver::{CudaContext, CudaSlice, PushKernelArg};

const BYTES: usize = 24;
const BUFFERS: usize = 4;

/// Random numbers for the program, independent of the schedule's.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

#[test]
fn random_programs_give_what_their_steps_give_in_order() {
    let sim = start();
    for seed in 0..2000 {
        sim.reset(seed);
        let mut numbers = Numbers(seed / 2);
        let context = CudaContext::new(0).unwrap();
        let add_one = kernel(&context, "add_one").unwrap();
        let mut streams: Vec<_> = (0..3).map(|_| context.new_stream().unwrap()).collect();
        streams.extend([context.default_stream(), context.per_thread_stream()]);
        let mut buffers: Vec<CudaSlice<u8>> =
            (0..BUFFERS).map(|i| streams[i % 3].clone_htod(&[i as u8; BYTES]).unwrap()).collect();
        let mut model: Vec<[u8; BYTES]> = (0..BUFFERS).map(|i| [i as u8; BYTES]).collect();
        for step in 0..80 {
            let stream = &streams[numbers.below(streams.len())];
            // A CudaSlice has one event for its last reader. If two streams read it, a writer waits for only one of
            // them, and with readers on any stream this test finds that. So all reading is on one stream.
            let reader = &streams[0];
            let (to, from) = (numbers.below(BUFFERS), numbers.below(BUFFERS));
            match numbers.below(8) {
                0 => {
                    stream.memcpy_htod(&[step; BYTES], &mut buffers[to]).unwrap();
                    model[to] = [step; BYTES];
                }
                1 if to != from => {
                    let (source, copy) = (model[from], reader.clone_dtod(&buffers[from]).unwrap());
                    // The old buffer is freed on its own stream, after the work that uses it.
                    buffers[to] = copy;
                    model[to] = source;
                }
                2 => {
                    stream.memset_zeros(&mut buffers[to]).unwrap();
                    model[to] = [0; BYTES];
                }
                3 => assert_eq!(reader.clone_dtoh(&buffers[to]).unwrap(), model[to], "seed {seed}, step {step}"),
                4 => stream.synchronize().unwrap(),
                _ => {
                    let mut launch = stream.launch_builder(&add_one);
                    // SAFETY: the kernel takes an address and a size.
                    unsafe { launch.arg(&mut buffers[to]).arg(&BYTES).launch(one_block()) }.unwrap();
                    model[to] = model[to].map(|byte| byte.wrapping_add(1));
                }
            }
        }
        for (buffer, model) in buffers.iter().zip(&model) {
            assert_eq!(streams[0].clone_dtoh(buffer).unwrap(), model, "seed {seed}: {}", sim.message());
        }
        drop((buffers, streams, add_one, context));
        let report = sim.report();
        assert_eq!((report.alive(), report.pending, report.illegal_accesses), (0, 0, 0), "seed {seed}: {report:?}");
    }
}

#[test]
fn threads_with_failures_end() {
    let sim = start();
    let mut wrong = 0;
    for seed in 0..100 {
        sim.reset_with_failures(seed, 0.01);
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(|| loader(Mistake::None))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let report = sim.report();
        for outcome in outcomes {
            match outcome {
                Ok(bytes) => assert_eq!(bytes, expected(), "seed {seed}"),
                Err(_) => wrong += 1,
            }
        }
        assert!(report.injected_failures > 0 || sim.message().is_empty(), "{}", sim.message());
        assert_eq!(report.pending, 0);
    }
    assert!(wrong > 0);
}
