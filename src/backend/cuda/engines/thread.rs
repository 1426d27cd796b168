//! The thread that queues images on the engines.

use super::machine::{EngineOptions, EngineParser, Machine};
use crate::backend::cuda::arena::Held;
use crate::backend::cuda::lock;
use crate::cuda::driver::{self, Context, Event, Scoped, Stream};
use crate::device::StreamPriority;
use crate::error::{Error, Result};
use crate::os::threads;
use crate::raster::Size;
use nvjpeg::{Handle, Library};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

/// An image for the engines.
#[derive(Clone)]
pub(in crate::backend::cuda) struct HardwareJob {
    pub(in crate::backend::cuda) encoded: Held,
    /// Device memory for the whole image, without gaps between rows. The host knows it to be idle, because Hopper's
    /// engines do not wait for work queued earlier.
    pub(in crate::backend::cuda) destination: u64,
    /// Offset and row pitch of each plane in the memory, where planes are decoded.
    pub(in crate::backend::cuda) planes: [(usize, usize); 3],
    pub(in crate::backend::cuda) size: Size,
    /// Sampling factors of luma, where those of chroma are 1.
    pub(in crate::backend::cuda) luma: (u8, u8),
}

/// The engines of one device for one pipeline.
pub(in crate::backend::cuda) struct Engines {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The outcome of opening, until it has been asked for.
    opened: Mutex<Option<mpsc::Receiver<Result<Scoped<Handle>>>>>,
    /// The handle for parsers, once the engines are open.
    handle: Mutex<Option<Scoped<Handle>>>,
}

/// What the thread and the others share.
struct Shared {
    lists: Mutex<Lists>,
    /// Notified when a list is ready or the thread is to end.
    ready: Condvar,
    stream: Arc<Stream>,
    context: Context,
    options: EngineOptions,
}

#[derive(Default)]
struct Lists {
    lists: Vec<List>,
    /// The list that was taken from last.
    last: usize,
    stopped: bool,
}

/// Images that have not been queued on the device.
struct List {
    luma: (u8, u8),
    images: VecDeque<Queued>,
    /// Number of images at the front that are not to wait for others.
    urgent: usize,
}

impl Engines {
    /// Begins to open the engines, in the background.
    pub(in crate::backend::cuda) fn open(context: &Context, library: Library, options: EngineOptions) -> Result<Self> {
        // The engines' few kernels would wait for those of a training step.
        let stream = Arc::new(Stream::new(context, StreamPriority::High)?);
        let (lists, ready) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { lists, ready, stream, context: Arc::clone(context), options });
        let (sender, receiver) = mpsc::channel();
        let of_thread = Arc::clone(&shared);
        let thread = threads::spawn("warpfeed-engines", move || of_thread.run(&library, &sender))?;
        let (opened, handle) = (Mutex::new(Some(receiver)), Mutex::new(None));
        Ok(Self { shared, thread: Some(thread), opened, handle })
    }

    /// Waits until the engines are open. Their states may still be made.
    ///
    /// # Errors
    /// [`Error::Device`] if there are none.
    pub(in crate::backend::cuda) fn wait_until_open(&self) -> Result<()> {
        let Some(opened) = lock(&self.opened).take() else { return Ok(()) };
        let ended = || Error::Device {
            call: "open the hardware decoder".to_owned(),
            message: "its thread has ended".to_owned(),
        };
        *lock(&self.handle) = Some(opened.recv().map_err(|_| ended())??);
        Ok(())
    }

    /// A parser for one worker.
    pub(in crate::backend::cuda) fn parser(&self) -> Option<Scoped<EngineParser>> {
        lock(&self.handle).as_ref().map(|handle| EngineParser::new(&self.shared.context, handle))
    }

    /// What a batch knows of its images on the engines.
    pub(in crate::backend::cuda) fn tracker(&self) -> Result<Arc<Tracker>> {
        let (shared, ended) = (Arc::clone(&self.shared), Event::new(&self.shared.context)?);
        Ok(Arc::new(Tracker { progress: Mutex::default(), changed: Condvar::new(), ended, shared }))
    }

    /// Leaves an image of a batch to the engines.
    pub(in crate::backend::cuda) fn queue(&self, tracker: &Arc<Tracker>, place: usize, job: HardwareJob) {
        let luma = if self.shared.options.one_subsampling { job.luma } else { (0, 0) };
        let image = Queued::new(tracker, place, job);
        let mut lists = self.shared.lock();
        if lists.stopped {
            // It is refused.
            drop(lists);
            return drop(image);
        }
        let at = lists.lists.iter().position(|list| list.luma == luma).unwrap_or_else(|| {
            lists.lists.push(List { luma, images: VecDeque::new(), urgent: 0 });
            lists.lists.len() - 1
        });
        let list = &mut lists.lists[at];
        list.images.push_back(image);
        if list.images.len() >= self.shared.options.images {
            self.shared.ready.notify_one();
        }
    }

    /// Waits for all work that was queued on the device.
    pub(in crate::backend::cuda) fn synchronize(&self) -> Result<()> {
        self.shared.stream.synchronize()
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        // A forked child has no such thread, and may have a lock that no thread will release.
        if self.shared.context.is_inherited() {
            return;
        }
        self.shared.lock().stopped = true;
        self.shared.ready.notify_one();
        if let Some(thread) = self.thread.take() {
            // What a panic left is refused (`Queued`).
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the thread does. The images that it leaves are refused.
    fn run(&self, library: &Library, opened: &mpsc::Sender<Result<Scoped<Handle>>>) {
        let end = End(self);
        let machine = driver::enter(&self.context).and_then(|_entered| {
            let machine = Machine::open(&self.context, library, Arc::clone(&self.stream), self.options)?;
            Ok((Scoped::new(&self.context, machine.handle()), Scoped::new(&self.context, machine)))
        });
        let mut machine = match machine {
            Ok((handle, machine)) => {
                let _ = opened.send(Ok(handle));
                machine
            }
            Err(error) => {
                let _ = opened.send(Err(error));
                return;
            }
        };
        if let Ok(_entered) = driver::enter(&self.context) {
            machine.prepare();
        }
        while let Some((at, luma)) = self.wait_for_list() {
            match driver::enter(&self.context) {
                Ok(_entered) => {
                    // Meanwhile more images may come, which are decoded together with these.
                    let free = machine.wait_for(luma);
                    let images = self.take(at);
                    match free {
                        Ok(()) => machine.decode(images),
                        Err(error) => Queued::fail(images, &error),
                    }
                }
                Err(error) => Queued::fail(self.take(at), &error),
            }
        }
        drop(machine);
        drop(end);
    }

    /// Waits for a list from which images are to be taken, in turn. `None` if the thread is to end.
    fn wait_for_list(&self) -> Option<(usize, (u8, u8))> {
        let mut lists = self.lock();
        loop {
            if lists.stopped {
                return None;
            }
            let count = lists.lists.len();
            let ready = |at: &usize| {
                let list = &lists.lists[*at];
                list.urgent > 0 || list.images.len() >= self.options.images
            };
            let found = (1..=count).map(|i| (lists.last + i) % count).find(ready);
            if let Some(at) = found {
                lists.last = at;
                return Some((at, lists.lists[at].luma));
            }
            lists = self.ready.wait(lists).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The images of the next call.
    fn take(&self, at: usize) -> Vec<Queued> {
        let mut lists = self.lock();
        let list = &mut lists.lists[at];
        let count = list.images.len().min(self.options.images.max(1));
        list.urgent = list.urgent.saturating_sub(count);
        let images: Vec<_> = list.images.drain(..count).collect();
        drop(lists);
        let (given_up, images): (Vec<_>, Vec<_>) = images.into_iter().partition(|image| image.tracker.is_given_up());
        drop(given_up);
        images
    }

    /// Lets the images of a batch wait no longer for others.
    fn hurry(&self, tracker: &Tracker) {
        let mut lists = self.lock();
        for list in &mut lists.lists {
            let last = list.images.iter().rposition(|image| std::ptr::eq(&*image.tracker, tracker));
            list.urgent = list.urgent.max(last.map_or(0, |last| last + 1));
        }
        drop(lists);
        self.ready.notify_one();
    }
}

/// Refuses the images of all lists when the thread ends.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let lists = {
            let mut lists = self.0.lock();
            lists.stopped = true;
            std::mem::take(&mut lists.lists)
        };
        drop(lists);
    }
}

/// The images of one batch on the engines.
pub(in crate::backend::cuda) struct Tracker {
    progress: Mutex<Progress>,
    changed: Condvar,
    /// Passes when the engines are done with the batch.
    ended: Event,
    shared: Arc<Shared>,
}

/// Images that the engines do not take, with their places.
pub(in crate::backend::cuda) type Refused = Vec<(usize, HardwareJob)>;

#[derive(Default)]
struct Progress {
    /// Number of images that are not yet queued on the device.
    waiting: usize,
    /// Places of all images.
    places: Vec<usize>,
    refused: Refused,
    error: Option<Error>,
    given_up: bool,
}

impl Tracker {
    /// Lets the images wait no longer for those of other batches.
    pub(in crate::backend::cuda) fn hurry(&self) {
        self.shared.hurry(self);
    }

    /// Waits until all images are queued on the device or refused. Returns the places of all images, and the refused
    /// ones.
    ///
    /// # Errors
    /// A failure of the device.
    pub(in crate::backend::cuda) fn wait(&self) -> Result<(Vec<usize>, Refused)> {
        self.shared.hurry(self);
        let mut progress = self.wait_idle();
        let (places, refused) = (std::mem::take(&mut progress.places), std::mem::take(&mut progress.refused));
        progress.error.take().map_or(Ok((places, refused)), Err)
    }

    fn wait_idle(&self) -> MutexGuard<'_, Progress> {
        let progress = lock(&self.progress);
        self.changed.wait_while(progress, |progress| progress.waiting > 0).unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes when the engines are done with the batch.
    pub(in crate::backend::cuda) fn ended(&self) -> &Event {
        &self.ended
    }

    fn is_given_up(&self) -> bool {
        lock(&self.progress).given_up
    }

    /// Takes back the images that are not yet queued on the device. Work that is queued goes on.
    pub(in crate::backend::cuda) fn give_up(&self) {
        // In a forked child a lock may be held for ever.
        if self.shared.context.is_inherited() {
            return;
        }
        lock(&self.progress).given_up = true;
        self.shared.hurry(self);
        *self.wait_idle() = Progress::default();
    }
}

/// An image that is not yet queued on the device. If it is dropped, it is refused.
pub(super) struct Queued {
    place: usize,
    /// `None` once the image is accepted or refused.
    job: Option<HardwareJob>,
    tracker: Arc<Tracker>,
}

impl Queued {
    fn new(tracker: &Arc<Tracker>, place: usize, job: HardwareJob) -> Self {
        let mut progress = lock(&tracker.progress);
        progress.waiting += 1;
        progress.places.push(place);
        drop(progress);
        Self { place, job: Some(job), tracker: Arc::clone(tracker) }
    }

    #[allow(clippy::expect_used, reason = "it is taken where the image itself is")]
    pub(super) fn job(&self) -> &HardwareJob {
        self.job.as_ref().expect("an image that waits has a job")
    }

    /// Notes that images were just queued on the device.
    ///
    /// # Errors
    /// A failure of the device; their batches have it too.
    pub(super) fn accept(mut images: Vec<Self>, stream: &Stream) -> Result<()> {
        let mut trackers: Vec<&Arc<Tracker>> = Vec::new();
        for Self { tracker, .. } in &images {
            if !trackers.iter().any(|known| Arc::ptr_eq(known, tracker)) {
                trackers.push(tracker);
            }
        }
        let recorded = trackers.iter().try_for_each(|tracker| tracker.ended.record(stream));
        if let Err(error) = &recorded {
            Self::fail(images, error);
        } else {
            images.iter_mut().for_each(|image| image.job = None);
        }
        recorded
    }

    /// Leaves the image to the CPU.
    pub(super) fn refuse(self) {}

    /// Notes that the device has failed.
    pub(super) fn fail(images: Vec<Self>, error: &Error) {
        for mut image in images {
            image.job = None;
            lock(&image.tracker.progress).error.get_or_insert_with(|| again(error));
        }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let job = self.job.take();
        let mut progress = lock(&self.tracker.progress);
        progress.waiting -= 1;
        progress.refused.extend(job.map(|job| (self.place, job)));
        if progress.waiting == 0 {
            self.tracker.changed.notify_all();
        }
    }
}

/// Copies an error, so that each batch of a failed call has it.
fn again(error: &Error) -> Error {
    match error {
        Error::Cuda { call, code, name, message } => {
            Error::Cuda { call: call.clone(), code: *code, name: name.clone(), message: message.clone() }
        }
        Error::Device { call, message } => Error::Device { call: call.clone(), message: message.clone() },
        other => Error::Device { call: "decode on the engines".to_owned(), message: other.to_string() },
    }
}
