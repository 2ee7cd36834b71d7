//! The ranks' output, line by line.
//!
//! Each rank's stdout and stderr are pipes. What comes is passed on in whole lines, so lines of
//! different ranks never mix; an unfinished line waits for its rest, or for the end of the pipe.
//! Writing never blocks mpiexec: what the reader of the output does not take is kept, and from a
//! certain amount on the pipes are left alone so that the ranks feel it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;

/// Bytes read at once.
const READ: usize = 256 * 1024;
/// Once so many bytes wait to be written, nothing more is read.
const QUEUE_HIGH: usize = 1 << 20;
/// An unfinished line longer than this is passed on as it is.
const LINE_MAX: usize = 64 << 20;
/// An unfinished line for a terminal, say a question, is shown after this time.
const PROMPT: Duration = Duration::from_millis(100);

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channel {
    /// Standard output.
    Out = 0,
    /// Standard error.
    Err = 1,
}

/// All output of a job.
pub struct Output {
    sinks: [Sink; 2],
    streams: Vec<Option<Stream>>,
    buffer: Vec<u8>,
    /// Put "[rank] " before each line.
    label: bool,
    /// Only one rank: pass everything on as it comes.
    single: bool,
    /// Numbers below this belong to ranks; those above to what starts agents.
    ranks: usize,
}

/// One pipe of a rank.
struct Stream {
    /// None where an agent reads it.
    pipe: Option<File>,
    /// An unfinished line.
    unfinished: Vec<u8>,
    /// When it last grew.
    touched: Instant,
    /// Part of the line has been shown already.
    shown: bool,
}

/// What reading a stream brought.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Flow {
    /// Maybe more later.
    Open,
    /// The pipe has ended; the stream is closed.
    Ended,
}

impl Output {
    /// For `ranks` ranks and `others` that are none.
    pub fn new(ranks: usize, others: usize, label: bool) -> Output {
        Output {
            sinks: [Sink::new(1), Sink::new(2)],
            streams: (0..2 * (ranks + others)).map(|_| None).collect(),
            buffer: vec![0; READ],
            label,
            single: ranks == 1 && others == 0 && !label,
            ranks,
        }
    }

    /// Streams that there can be.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Takes the reading end of a rank's pipe; the number names the stream from now on.
    pub fn add(&mut self, rank: usize, channel: Channel, pipe: OwnedFd) -> usize {
        self.open(rank, channel, Some(pipe.into()))
    }

    /// A rank whose output comes by [`feed`](Output::feed).
    pub fn add_afar(&mut self, rank: usize) {
        self.open(rank, Channel::Out, None);
        self.open(rank, Channel::Err, None);
    }

    fn open(&mut self, rank: usize, channel: Channel, pipe: Option<File>) -> usize {
        let number = 2 * rank + channel as usize;
        self.streams[number] = Some(Stream {
            pipe,
            unfinished: Vec::new(),
            touched: Instant::now(),
            shown: false,
        });
        number
    }

    /// What a rank elsewhere has written; nothing: its end.
    pub fn feed(&mut self, rank: usize, channel: Channel, bytes: &[u8]) {
        let number = 2 * rank + channel as usize;
        if bytes.is_empty() {
            self.end(number);
        }
        for piece in bytes.chunks(READ) {
            self.buffer[..piece.len()].copy_from_slice(piece);
            self.take(number, piece.len());
        }
    }

    /// The descriptor of a stream that has not ended.
    pub fn descriptor(&self, stream: usize) -> Option<RawFd> {
        let stream = self.streams[stream].as_ref()?;
        stream.pipe.as_ref().map(|p| p.as_raw_fd())
    }

    /// Streams that have not ended.
    pub fn open_streams(&self) -> impl Iterator<Item = usize> {
        self.streams
            .iter()
            .enumerate()
            .filter(|(_, s)| s.is_some())
            .map(|(n, _)| n)
    }

    /// Reads once from a non-blocking stream and queues the whole lines.
    pub fn read(&mut self, number: usize) -> Flow {
        let Some(stream) = &mut self.streams[number] else {
            return Flow::Ended;
        };
        let Some(pipe) = &mut stream.pipe else {
            return Flow::Open;
        };
        match pipe.read(&mut self.buffer) {
            Ok(0) => {
                self.end(number);
                Flow::Ended
            }
            Ok(n) => {
                self.take(number, n);
                Flow::Open
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Flow::Open
            }
            Err(_) => {
                self.end(number);
                Flow::Ended
            }
        }
    }

    /// Reads all that is in a stream now.
    pub fn drain(&mut self, number: usize) {
        while let Some(Stream {
            pipe: Some(pipe), ..
        }) = &self.streams[number]
        {
            let there = rustix::io::ioctl_fionread(pipe).unwrap_or(0);
            if there == 0 || self.read(number) == Flow::Ended {
                return;
            }
        }
    }

    /// Closes a stream and passes its unfinished line on.
    pub fn end(&mut self, number: usize) {
        let label = self.labels(number);
        if let Some(mut stream) = self.streams[number].take() {
            let line = std::mem::take(&mut stream.unfinished);
            if !line.is_empty() {
                self.sinks[number % 2].put(number, label, stream.shown, &line, &[]);
            }
        }
    }

    /// Do its lines get a rank before them?
    fn labels(&self, number: usize) -> bool {
        self.label && number < 2 * self.ranks
    }

    /// `n` bytes have been read from a stream into the buffer.
    fn take(&mut self, number: usize, n: usize) {
        let label = self.labels(number);
        let bytes = &self.buffer[..n];
        let sink = &mut self.sinks[number % 2];
        let Some(stream) = &mut self.streams[number] else {
            return;
        };
        if self.single {
            sink.put(number, false, true, bytes, &[]);
            return;
        }
        let whole = bytes
            .iter()
            .rposition(|&b| b == b'\n')
            .map_or(0, |at| at + 1);
        if whole > 0 {
            sink.put(
                number,
                label,
                stream.shown,
                &stream.unfinished,
                &bytes[..whole],
            );
            stream.unfinished.clear();
            stream.shown = false;
        }
        stream.unfinished.extend_from_slice(&bytes[whole..]);
        stream.touched = Instant::now();
        if stream.unfinished.len() > LINE_MAX {
            sink.put(number, label, stream.shown, &stream.unfinished, &[]);
            stream.unfinished = Vec::new();
            stream.shown = true;
        }
    }

    /// Shows unfinished lines on terminals that have rested for a while. Returns when to look
    /// again.
    pub fn show_prompts(&mut self, now: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        if !self.sinks.iter().any(|s| s.terminal) {
            return None;
        }
        for (number, stream) in self.streams.iter_mut().enumerate() {
            let label = self.label && number < 2 * self.ranks;
            let sink = &mut self.sinks[number % 2];
            if let Some(stream) = stream
                && sink.terminal
                && !stream.unfinished.is_empty()
            {
                let due = stream.touched + PROMPT;
                if due <= now {
                    sink.put(number, label, stream.shown, &stream.unfinished, &[]);
                    stream.unfinished.clear();
                    stream.shown = true;
                } else {
                    next = Some(next.map_or(due, |n| n.min(due)));
                }
            }
        }
        next
    }

    /// Says something of mpiexec's own on standard error, each line with its name before it.
    pub fn say(&mut self, text: &str) {
        let mut lines = String::new();
        for line in text.trim_end().lines() {
            lines += "mpiexec: ";
            lines += line;
            lines.push('\n');
        }
        self.sinks[1].put(usize::MAX, false, false, lines.as_bytes(), &[]);
    }

    /// Writes what can be written without blocking.
    ///
    /// # Errors
    /// The channel that is broken from now on, told once; what is written to it after that is
    /// dropped.
    pub fn flush(&mut self) -> Result<(), (Channel, io::Error)> {
        let out = self.sinks[0].flush().map_err(|e| (Channel::Out, e));
        let err = self.sinks[1].flush().map_err(|e| (Channel::Err, e));
        out.and(err)
    }

    /// Is everything written?
    pub fn is_empty(&self) -> bool {
        self.sinks.iter().all(|s| s.waiting().is_empty())
    }

    /// Should pipes of this channel be left alone for now?
    pub fn is_full(&self, channel: Channel) -> bool {
        self.sinks[channel as usize].waiting().len() >= QUEUE_HIGH
    }

    /// The descriptor to poll for writing, if something waits to be written there.
    pub fn blocked(&self, channel: Channel) -> Option<RawFd> {
        let sink = &self.sinks[channel as usize];
        (!sink.waiting().is_empty()).then(|| sink.descriptor())
    }
}

/// Where a channel's lines go.
struct Sink {
    number: RawFd,
    kind: Kind,
    queue: Vec<u8>,
    written: usize,
    broken: bool,
    terminal: bool,
    /// The stream whose unfinished line the cursor stands in.
    inside: Option<usize>,
}

enum Kind {
    /// A pipe or terminal opened once more, without blocking; the descriptor that others share is
    /// left as it is.
    Reopened(OwnedFd),
    Socket,
    /// A pipe that could not be opened once more: written in pieces that fit when it says that it
    /// has room.
    Careful,
    /// A file: always takes all.
    File,
}

impl Sink {
    fn new(number: RawFd) -> Sink {
        // SAFETY: Rust's runtime sees to it that 1 and 2 are open, and nobody closes them.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let kind = match fstat(fd).map(|s| FileType::from_raw_mode(s.st_mode)) {
            Ok(FileType::Fifo | FileType::CharacterDevice) => {
                let again = format!("/proc/self/fd/{number}");
                let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
                open(again, flags, Mode::empty()).map_or(Kind::Careful, Kind::Reopened)
            }
            Ok(FileType::Socket) => Kind::Socket,
            _ => Kind::File,
        };
        let terminal = rustix::termios::isatty(fd);
        Sink {
            number,
            kind,
            queue: Vec::new(),
            written: 0,
            broken: false,
            terminal,
            inside: None,
        }
    }

    fn waiting(&self) -> &[u8] {
        &self.queue[self.written..]
    }

    fn descriptor(&self) -> RawFd {
        match &self.kind {
            Kind::Reopened(fd) => fd.as_raw_fd(),
            _ => self.number,
        }
    }

    /// Queues `first` and `rest`, which belong together. `continued`: the line's beginning was
    /// passed on before.
    fn put(&mut self, stream: usize, label: bool, continued: bool, first: &[u8], rest: &[u8]) {
        if self.broken || first.is_empty() && rest.is_empty() {
            return;
        }
        let mut fresh = !continued || self.inside != Some(stream);
        if self.inside.is_some_and(|owner| owner != stream) {
            self.queue.push(b'\n');
        }
        if label && stream != usize::MAX {
            let label = format!("[{}] ", stream / 2);
            for piece in [first, rest] {
                for line in piece.split_inclusive(|&b| b == b'\n') {
                    if fresh {
                        self.queue.extend_from_slice(label.as_bytes());
                    }
                    self.queue.extend_from_slice(line);
                    fresh = line.ends_with(b"\n");
                }
            }
        } else {
            self.queue.extend_from_slice(first);
            self.queue.extend_from_slice(rest);
        }
        self.inside = (self.queue.last() != Some(&b'\n')).then_some(stream);
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.written < self.queue.len() {
            match self.write_some() {
                Ok(n) => self.written += n,
                Err(Errno::AGAIN) => {
                    // Keep the queue from growing at its front for ever.
                    if self.written > QUEUE_HIGH {
                        self.queue.drain(..self.written);
                        self.written = 0;
                    }
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(e) => {
                    self.broken = true;
                    self.queue.clear();
                    self.written = 0;
                    return Err(e.into());
                }
            }
        }
        self.queue.clear();
        self.written = 0;
        Ok(())
    }

    fn write_some(&self) -> Result<usize, Errno> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        use rustix::net::{SendFlags, send};
        // SAFETY: as in `new`.
        let fd = unsafe { BorrowedFd::borrow_raw(self.number) };
        let bytes = self.waiting();
        match &self.kind {
            Kind::Reopened(fd) => rustix::io::write(fd, bytes),
            Kind::Socket => send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            Kind::File => rustix::io::write(fd, bytes),
            Kind::Careful => {
                let mut ready = [PollFd::new(&fd, PollFlags::OUT)];
                if poll(
                    &mut ready,
                    Some(&Timespec {
                        tv_sec: 0,
                        tv_nsec: 0,
                    }),
                )? == 0
                {
                    return Err(Errno::AGAIN);
                }
                // A pipe that is ready takes at least PIPE_BUF bytes.
                rustix::io::write(fd, &bytes[..bytes.len().min(libc::PIPE_BUF)])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sink() -> Sink {
        Sink {
            number: 1,
            kind: Kind::File,
            queue: Vec::new(),
            written: 0,
            broken: false,
            terminal: false,
            inside: None,
        }
    }
    fn output(ranks: usize, label: bool) -> Output {
        let mut output = Output::new(ranks, 0, label);
        output.sinks = [sink(), sink()];
        for rank in 0..ranks {
            let null: OwnedFd = File::open("/dev/null").unwrap().into();
            output.add(rank, Channel::Out, null);
        }
        output
    }
    fn feed(output: &mut Output, rank: usize, text: &str) {
        output.buffer[..text.len()].copy_from_slice(text.as_bytes());
        output.take(2 * rank, text.len());
    }
    fn queued(output: &Output) -> String {
        String::from_utf8(output.sinks[0].queue.clone()).unwrap()
    }

    #[test]
    fn lines_stay_whole() {
        let mut o = output(2, false);
        feed(&mut o, 0, "ab");
        feed(&mut o, 1, "one\ntwo\nth");
        feed(&mut o, 0, "c\nd");
        o.end(2);
        o.end(0);
        assert_eq!(queued(&o), "one\ntwo\nabc\nth\nd");
    }

    #[test]
    fn every_line_has_its_label() {
        let mut o = output(11, true);
        feed(&mut o, 10, "x\ny");
        feed(&mut o, 0, "a\n");
        feed(&mut o, 10, "z\n\n");
        assert_eq!(queued(&o), "[10] x\n[0] a\n[10] yz\n[10] \n");
    }

    #[test]
    fn one_rank_passes_as_it_is() {
        let mut o = output(1, false);
        feed(&mut o, 0, "question? ");
        assert_eq!(queued(&o), "question? ");
        feed(&mut o, 0, "more");
        assert_eq!(queued(&o), "question? more");
    }

    #[test]
    fn a_prompt_on_a_terminal_is_shown_and_others_begin_a_new_line() {
        let mut o = output(2, true);
        o.sinks[0].terminal = true;
        feed(&mut o, 0, "name? ");
        let later = Instant::now() + PROMPT;
        assert_eq!(o.show_prompts(later), None);
        assert_eq!(queued(&o), "[0] name? ");
        feed(&mut o, 1, "hi\n");
        feed(&mut o, 0, "ok\n");
        assert_eq!(queued(&o), "[0] name? \n[1] hi\n[0] ok\n");
    }

    #[test]
    fn mpiexecs_own_words_begin_a_line() {
        let mut o = output(1, false);
        o.add(0, Channel::Err, File::open("/dev/null").unwrap().into());
        o.buffer[..2].copy_from_slice(b"ab");
        o.take(1, 2);
        o.say("one\ntwo");
        assert_eq!(o.sinks[1].queue, b"ab\nmpiexec: one\nmpiexec: two\n");
    }
}
