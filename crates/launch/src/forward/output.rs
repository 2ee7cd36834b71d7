//! The ranks' output, line by line.
//!
//! The standard output and error of each rank are pipes. mpiexec passes whole lines on, so that
//! lines of different ranks never mix. An unfinished line waits for its rest or for the end of the
//! pipe. Writing never blocks mpiexec: output that is not taken is queued. While the queue is full,
//! the pipes are not read, and so the ranks are slowed down.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::sink::{QUEUE_HIGH_BYTES, Sink};

/// Bytes read from a pipe at once.
const READ_BYTES: usize = 256 * 1024;
/// Longest unfinished line that is kept. A longer one is passed on as it is.
const LINE_MAX_BYTES: usize = 64 << 20;
/// Delay before an unfinished line is shown on a terminal. It may be a question, and must not seem
/// late to who answers.
const PROMPT_DELAY: Duration = Duration::from_millis(100);

/// Standard output or standard error.
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
    /// Put `[rank] ` before each line.
    label: bool,
    /// Only one rank: pass everything on as it comes.
    single: bool,
    /// Number of ranks. Streams with higher numbers belong to launchers of agents.
    ranks: usize,
}

/// One pipe of a rank.
struct Stream {
    /// `None` if an agent reads it.
    pipe: Option<File>,
    /// An unfinished line.
    unfinished: Vec<u8>,
    /// When it last grew.
    last_growth: Instant,
    /// Part of the line has been shown already.
    prompt_shown: bool,
}

/// What reading a stream brought.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ReadOutcome {
    /// Maybe more later.
    Open,
    /// The pipe has ended; the stream is closed.
    Ended,
}

impl Output {
    /// Output of `ranks` ranks and of `others`, launchers of agents.
    pub fn new(ranks: usize, others: usize, label: bool) -> Output {
        Output {
            sinks: [Sink::new(1), Sink::new(2)],
            streams: (0..2 * (ranks + others)).map(|_| None).collect(),
            buffer: vec![0; READ_BYTES],
            label,
            single: ranks == 1 && others == 0 && !label,
            ranks,
        }
    }

    /// Number of streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Takes the reading end of a rank's pipe. Returns the stream's number.
    pub fn add(&mut self, rank: usize, channel: Channel, pipe: OwnedFd) -> usize {
        self.open(rank, channel, Some(pipe.into()))
    }

    /// Adds a rank whose output comes by [`append`](Output::append).
    pub fn add_remote(&mut self, rank: usize) {
        self.open(rank, Channel::Out, None);
        self.open(rank, Channel::Err, None);
    }

    fn open(&mut self, rank: usize, channel: Channel, pipe: Option<File>) -> usize {
        let number = 2 * rank + channel as usize;
        self.streams[number] = Some(Stream {
            pipe,
            unfinished: Vec::new(),
            last_growth: Instant::now(),
            prompt_shown: false,
        });
        number
    }

    /// Adds what a rank on another host has written. Empty at the end of its stream.
    pub fn append(&mut self, rank: usize, channel: Channel, bytes: &[u8]) {
        let number = 2 * rank + channel as usize;
        if bytes.is_empty() {
            self.end(number);
        }
        for piece in bytes.chunks(READ_BYTES) {
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
    pub fn read(&mut self, number: usize) -> ReadOutcome {
        let Some(stream) = &mut self.streams[number] else {
            return ReadOutcome::Ended;
        };
        let Some(pipe) = &mut stream.pipe else {
            return ReadOutcome::Open;
        };
        match pipe.read(&mut self.buffer) {
            Ok(0) => {
                self.end(number);
                ReadOutcome::Ended
            }
            Ok(n) => {
                self.take(number, n);
                ReadOutcome::Open
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                ReadOutcome::Open
            }
            Err(_) => {
                self.end(number);
                ReadOutcome::Ended
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
            if there == 0 || self.read(number) == ReadOutcome::Ended {
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
                self.sinks[number % 2].put(number, label, stream.prompt_shown, &line, &[]);
            }
        }
    }

    /// Do the lines of this stream begin with their rank?
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
                stream.prompt_shown,
                &stream.unfinished,
                &bytes[..whole],
            );
            stream.unfinished.clear();
            stream.prompt_shown = false;
        }
        stream.unfinished.extend_from_slice(&bytes[whole..]);
        stream.last_growth = Instant::now();
        if stream.unfinished.len() > LINE_MAX_BYTES {
            sink.put(number, label, stream.prompt_shown, &stream.unfinished, &[]);
            stream.unfinished = Vec::new();
            stream.prompt_shown = true;
        }
    }

    /// Shows unfinished lines on terminals after [`PROMPT_DELAY`]. Returns when to look again.
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
                let due = stream.last_growth + PROMPT_DELAY;
                if due <= now {
                    sink.put(number, label, stream.prompt_shown, &stream.unfinished, &[]);
                    stream.unfinished.clear();
                    stream.prompt_shown = true;
                } else {
                    next = Some(next.map_or(due, |n| n.min(due)));
                }
            }
        }
        next
    }

    /// Prints a message of mpiexec's own on standard error, with `mpiexec: ` before each line.
    pub fn print_message(&mut self, text: &str) {
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
    /// The channel cannot be written any more. Reported once; later output to it is dropped.
    pub fn flush(&mut self) -> Result<(), (Channel, io::Error)> {
        let out = self.sinks[0].flush().map_err(|e| (Channel::Out, e));
        let err = self.sinks[1].flush().map_err(|e| (Channel::Err, e));
        out.and(err)
    }

    /// Is everything written?
    pub fn is_empty(&self) -> bool {
        self.sinks.iter().all(|s| s.waiting().is_empty())
    }

    /// Should the pipes of this channel not be read for now?
    pub fn is_full(&self, channel: Channel) -> bool {
        self.sinks[channel as usize].waiting().len() >= QUEUE_HIGH_BYTES
    }

    /// The descriptor to poll for writing, if something waits to be written there.
    pub fn blocked(&self, channel: Channel) -> Option<RawFd> {
        let sink = &self.sinks[channel as usize];
        (!sink.waiting().is_empty()).then(|| sink.descriptor())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::sink::SinkKind;

    fn sink() -> Sink {
        Sink {
            number: 1,
            kind: SinkKind::File,
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
    fn append(output: &mut Output, rank: usize, text: &str) {
        output.buffer[..text.len()].copy_from_slice(text.as_bytes());
        output.take(2 * rank, text.len());
    }
    fn queued(output: &Output) -> String {
        String::from_utf8(output.sinks[0].queue.clone()).unwrap()
    }

    #[test]
    fn lines_stay_whole() {
        let mut o = output(2, false);
        append(&mut o, 0, "ab");
        append(&mut o, 1, "one\ntwo\nth");
        append(&mut o, 0, "c\nd");
        o.end(2);
        o.end(0);
        assert_eq!(queued(&o), "one\ntwo\nabc\nth\nd");
    }

    #[test]
    fn every_line_has_its_label() {
        let mut o = output(11, true);
        append(&mut o, 10, "x\ny");
        append(&mut o, 0, "a\n");
        append(&mut o, 10, "z\n\n");
        assert_eq!(queued(&o), "[10] x\n[0] a\n[10] yz\n[10] \n");
    }

    #[test]
    fn one_rank_passes_as_it_is() {
        let mut o = output(1, false);
        append(&mut o, 0, "question? ");
        assert_eq!(queued(&o), "question? ");
        append(&mut o, 0, "more");
        assert_eq!(queued(&o), "question? more");
    }

    #[test]
    fn a_prompt_on_a_terminal_is_shown_and_others_begin_a_new_line() {
        let mut o = output(2, true);
        o.sinks[0].terminal = true;
        append(&mut o, 0, "name? ");
        let later = Instant::now() + PROMPT_DELAY;
        assert_eq!(o.show_prompts(later), None);
        assert_eq!(queued(&o), "[0] name? ");
        append(&mut o, 1, "hi\n");
        append(&mut o, 0, "ok\n");
        assert_eq!(queued(&o), "[0] name? \n[1] hi\n[0] ok\n");
    }

    #[test]
    fn mpiexecs_own_words_begin_a_line() {
        let mut o = output(1, false);
        o.add(0, Channel::Err, File::open("/dev/null").unwrap().into());
        o.buffer[..2].copy_from_slice(b"ab");
        o.take(1, 2);
        o.print_message("one\ntwo");
        assert_eq!(o.sinks[1].queue, b"ab\nmpiexec: one\nmpiexec: two\n");
    }
}
