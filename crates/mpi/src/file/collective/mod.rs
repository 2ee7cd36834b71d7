//! Collective reads and writes (MPI 5.0 §14.4.2 to §14.4.3).
//!
//! ```text
//! 1. extent     every rank tells all which range of the file it accesses
//! 2. plan       where ranges interleave in small pieces: two phases. Otherwise each rank reads or
//!               writes by itself
//! 3. exchange   aggregators, each with a domain of the file, work through it window by window:
//!               they receive a window's data and write it, or read it and send it
//! 4.            aggregators tell all ranks whether they have failed
//! ```
//!
//! Aggregators know the other ranks' views, which travel once. So a window's messages hold data
//! only, and these go straight between the ranks' buffers and the window.
//!
//! The non-blocking form (`pending`) goes on in the background. `driver` says who reads and writes
//! the windows: the calling thread, or the engine's threads beside the exchange of the next ones.

mod driver;
mod exchange;
mod extent;
mod pending;
mod plan;
mod window;

pub(super) use exchange::RankViews;

use super::access::{Direction, Transfer};
use super::{File, Position};
use crate::coll::{Call, Collective, CollectiveOperation, Uniform, View};
use crate::device;
use crate::process::process;
use crate::pt2pt::Buffer;
use crate::request::Outcome;
use crate::{Comm, Datatype, Error, Request, Result};
use driver::Driver;
use exchange::{Exchange, Step};
use extent::Extent;
use ferry_datatype::Basic;
use ferry_io::transfer;
use plan::Plan;
use std::sync::{Arc, PoisonError};

/// The buffers of an allgather of as many numbers from each rank.
struct AllgatherBuffers {
    mine: Box<[u64]>,
    all: Box<[u64]>,
}

impl AllgatherBuffers {
    fn new(comm: &Comm, mine: &[u64]) -> AllgatherBuffers {
        AllgatherBuffers {
            mine: mine.into(),
            all: vec![0; mine.len() * comm.size() as usize].into(),
        }
    }

    fn call<'a>(&'a mut self, comm: &'a Arc<Comm>) -> Call<'a> {
        let datatype = Datatype::basic(Basic::Uint64);
        let count = self.mine.len() as i64;
        let view = |address: *mut u8| View::Uniform {
            address,
            count,
            datatype,
        };
        let block = Uniform {
            send: count,
            recv: count,
            bytes: 8 * count,
        };
        let allgather = Collective::Allgather {
            block,
            in_place: false,
        };
        Call::new(
            comm,
            CollectiveOperation::Collective(allgather),
            view(self.mine.as_mut_ptr().cast()),
            view(self.all.as_mut_ptr().cast()),
            None,
        )
    }

    /// Blocks until all ranks have called it.
    fn gather(mut self, comm: &Arc<Comm>) -> Result<Box<[u64]>> {
        // SAFETY: the buffers have the numbers of all ranks.
        let done = unsafe { self.call(comm).run() };
        done.map_err(Error::on_call)?;
        Ok(self.all)
    }

    /// Starts it. The numbers must live until the request completes.
    fn start(&mut self, comm: &Arc<Comm>) -> Arc<Request> {
        // SAFETY: the buffers have the numbers of all ranks, and the caller's promise.
        unsafe { self.call(comm).start() }
    }
}

/// Where a rank accesses the file in a collective call, and its buffer. An error: its arguments are
/// bad. It takes part without data then, so that the others go on, and the call returns the error.
pub type AccessArguments<'a> = Result<(Position, Buffer<'a>)>;

impl File {
    /// Reads collectively (MPI_File_read_all, MPI_File_read_at_all). Blocks until the data are in
    /// the buffer, and other ranks may have to call it first.
    ///
    /// Errors: that of `arguments`; those of [`File::read`]; the class of another rank's error if
    /// that kept data of this one from being read.
    ///
    /// # Safety
    /// The buffer is writable as its count and type say.
    pub unsafe fn read_all(self: &Arc<File>, arguments: AccessArguments<'_>) -> Result<Outcome> {
        // SAFETY: the caller's promise.
        unsafe { self.transfer_all(Direction::Read, arguments) }
    }

    /// Writes collectively (MPI_File_write_all, MPI_File_write_at_all). Blocks until the buffer may
    /// be used again, and other ranks may have to call it first.
    ///
    /// Errors: that of `arguments`; those of [`File::write`]; the class of another rank's error if
    /// two phases were used.
    ///
    /// # Safety
    /// The buffer is readable as its count and type say.
    pub unsafe fn write_all(self: &Arc<File>, arguments: AccessArguments<'_>) -> Result<Outcome> {
        // SAFETY: the caller's promise.
        unsafe { self.transfer_all(Direction::Write, arguments) }
    }

    /// Starts a collective read (MPI_File_iread_all, MPI_File_iread_at_all).
    ///
    /// Errors: those of bad arguments, of which other ranks see nothing.
    ///
    /// # Safety
    /// The buffer stays writable, and untouched, until completion.
    pub unsafe fn iread_all(
        self: &Arc<File>,
        arguments: AccessArguments<'_>,
    ) -> Result<Arc<Request>> {
        // SAFETY: the caller's promise.
        unsafe { pending::start(self, Direction::Read, arguments) }
    }

    /// Starts a collective write (MPI_File_iwrite_all, MPI_File_iwrite_at_all).
    ///
    /// Errors: as for [`File::iread_all`].
    ///
    /// # Safety
    /// The buffer stays readable and unchanged until completion.
    pub unsafe fn iwrite_all(
        self: &Arc<File>,
        arguments: AccessArguments<'_>,
    ) -> Result<Arc<Request>> {
        // SAFETY: the caller's promise.
        unsafe { pending::start(self, Direction::Write, arguments) }
    }

    /// # Safety
    /// As for `read_all` or `write_all`.
    unsafe fn transfer_all(
        self: &Arc<File>,
        direction: Direction,
        arguments: AccessArguments<'_>,
    ) -> Result<Outcome> {
        let mine = arguments.and_then(|(at, buffer)| self.transfer(direction, at, buffer));
        if self.comm.size() == 1 {
            // SAFETY: the caller's promise.
            return unsafe { mine?.run() };
        }
        // SAFETY: the caller's promise.
        let mine = mine.and_then(|transfer| Ok((unsafe { transfer.form_in_file() }?, transfer)));
        let tag = self.next_transfer();
        let extent = match &mine {
            Ok((_, transfer)) => self.extent(transfer),
            Err(_) => Extent::FAILED,
        };
        let all = AllgatherBuffers::new(&self.comm, &extent.words()).gather(&self.comm)?;
        let (converted, transfer) = mine?;
        let Some(plan) = Plan::new(self, direction, &all, true) else {
            // SAFETY: the caller's promise.
            return unsafe { transfer.run() };
        };
        let beside = self.writes_beside(&plan);
        // SAFETY: the caller's promise.
        let exchange = unsafe { Exchange::new(self, plan, transfer, converted, extent, tag) };
        let mut driver = Driver::new(exchange, beside);
        let what = self.waiting_for();
        loop {
            let mut step = Step::Pending;
            device::wait_until(&what, |d| {
                step = driver.advance(d);
                !matches!(step, Step::Pending)
            });
            match step {
                Step::Window(mut window) => {
                    window.transfer();
                    driver.transferred(window);
                }
                Step::Done => break,
                Step::Pending => {}
            }
        }
        // SAFETY: the caller's promise.
        unsafe { driver.end() }
    }

    /// Are windows read and written beside the exchange of the next ones? That gains where calls
    /// wait for a server, or where there is a core for it.
    fn writes_beside(&self, plan: &Plan) -> bool {
        let info = &process().rank_info;
        let spare_core = info.cores as usize > info.local_ranks.len();
        plan.domains.rounds() > 1 && (self.stored.file_system().is_remote() || spare_core)
    }

    /// The views of other ranks are out of date.
    pub(super) fn forget_rank_views(&self) {
        let mut known = self
            .rank_views
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *known = RankViews::default();
    }

    /// What this rank tells the others of a transfer.
    fn extent(&self, transfer: &Transfer) -> Extent {
        let len = match transfer.direction {
            Direction::Write => transfer.bytes,
            // What lies behind the end of the file is not read.
            Direction::Read => match transfer::len(&*transfer.stored) {
                Ok(end) => transfer.readable(end),
                Err(_) => return Extent::FAILED,
            },
        };
        let mut known = self
            .rank_views
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match known.own(&transfer.view) {
            Some(encoded) => {
                let parameters = self.parameters(transfer.direction);
                Extent::new(&transfer.view, transfer.position, len, encoded, parameters)
            }
            None => Extent::FAILED,
        }
    }
}

impl Transfer {
    /// How many of its bytes lie before the end of the file.
    fn readable(&self, end: u64) -> u64 {
        if !self.view.layout.is_rising() {
            return self.bytes;
        }
        let range = self
            .view
            .layout
            .positions_in(self.position, self.bytes, &(0..end));
        range.end - range.start
    }
}
