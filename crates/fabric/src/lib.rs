//! Modelled machines: hardware that is not there, in virtual time, and its real driver software.
//!
//! A job on a modelled machine has one clock, which is virtual. A process of its own, the *model*,
//! holds this clock, the calendar of what happens next, the cards and the links. The ranks are the
//! program's real processes. On each of them the driver software of the card really runs. It issues
//! hardware commands, reads the memory that the card maps, and waits.
//!
//! ```text
//!   rank (real process)                    model (one process)
//!  ┌──────────────────────────┐           ┌─────────────────────────────────────┐
//!  │ transport `model`        │           │ report    what was used, and when   │
//!  ├──────────────────────────┤           ├─────────────────────────────────────┤
//!  │ driver    of the card    │           │ card      remote_write, dimmnet2, … │
//!  │           (a paper's)    │           ├─────────────────────────────────────┤
//!  ├──────────────────────────┤           │ network   links, switches           │
//!  │ kernel::Client           │           ├─────────────────────────────────────┤
//!  │ clock, commands, events  │ ◄───────► │ kernel::Server   clock, calendar    │
//!  └──────────────────────────┘  Model-   └─────────────────────────────────────┘
//!                                Segment
//!   machine    the registry: files, kinds of card      platform   figures of every machine
//! ```
//!
//! # Time
//! Each rank has its own clock. It advances when the driver says what its work costs
//! ([`Client::charge`]), and when the rank waits. A command is stamped with the rank's clock and
//! takes effect on its own; the rank does not wait for it. The rank sees what the card has done
//! after [`Client::sync`], which lets the model catch up with the rank's clock.
//!
//! # Order
//! The model advances only while every rank has stopped: in [`Client::sync`], or in
//! [`Client::wait`] until something comes for it. It then does what is due, in the order of (time,
//! rank, sequence number). At one instant the hardware goes before the programs. So two runs of a
//! program are the same to the last digit, as long as its own computation counts as zero.
//!
//! # A new card
//! A kind of card is a folder. Each has the same parts:
//!
//! | part | holds | may use |
//! |---|---|---|
//! | `figures` | the `[nic]` table of its machine files | [`platform`] |
//! | `card` | its hardware, a [`Model`] | figures, [`kernel`], [`network`] |
//! | `driver` | its software, a [`driver::Driver`] | figures, the card's commands, [`kernel`] |
//! | `measure` | what its paper measures without MPI | all of these |
//!
//! What links and switches do is the same for all cards ([`network`]). The folder implements
//! [`CardKind`], and [`machine`] lists it. Card and driver do not see each other's memory: what a
//! command needs travels with it.
//!
//! # Example
//! Two ranks, here threads, on the machine `mpc2`:
//!
//! ```
//! use ferry_fabric::{Client, ModelSegment, Time, machine};
//!
//! let (file, text) = machine::find("mpc2").unwrap();
//! let machine = machine::read(&file, &text).unwrap();
//! let segment = ModelSegment::create(2, machine.mapped_bytes(), &machine.encode()).unwrap();
//! let outcome = std::thread::scope(|s| {
//!     let model = s.spawn(|| machine.run(segment.clone(), Default::default(), |_| {}));
//!     let ranks = [0, 1].map(|me| {
//!         let segment = segment.clone();
//!         s.spawn(move || {
//!             let mut client = Client::join(segment, me);
//!             client.charge("computing", Time::us(3));
//!             client.leave();
//!         })
//!     });
//!     ranks.map(|rank| rank.join().unwrap());
//!     segment.close();
//!     model.join().unwrap().unwrap()
//! });
//! assert_eq!(outcome.report.ranks[1].clock, Time::us(3));
//! ```

mod address_allocator;
pub mod card_kind;
pub mod dimmnet2;
pub mod driver;
pub mod ethernet;
pub mod kernel;
pub mod machine;
mod mapped_window;
pub mod network;
pub mod platform;
pub mod rapidio;
pub mod remote_memory;
pub mod remote_write;
pub mod report;
pub mod time;

pub use card_kind::CardKind;
pub use kernel::{
    Client, Event, InvalidCommand, Kernel, Model, ModelSegment, Observers, Rank, Server,
};
pub use network::{LinkUse, Network, Packet};
pub use report::{Outcome, Report};
pub use time::{Rate, Time};
