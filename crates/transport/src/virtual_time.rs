//! What a transport does that runs in virtual time, on a modelled machine.

use std::sync::atomic::AtomicU32;

/// A transport whose time is not the system's but a model's.
///
/// The model must know when a process computes, when it is in MPI, and when it waits. Only then can
/// virtual time go on without it.
pub trait VirtualTime {
    /// A thread of the process enters MPI.
    fn enter_mpi(&mut self);
    /// A thread of the process leaves MPI. `sleepers`: other threads of it wait there. `finished`:
    /// the process has finished with MPI.
    fn leave_mpi(&mut self, sleepers: bool, finished: bool);
    /// A thread waits within its call, outside of the lock. What it does until it enters again is
    /// none of the program's computation. `sleepers`: as for [`VirtualTime::leave_mpi`].
    fn leave_within_call(&mut self, sleepers: bool);
    /// If the next poll brings nothing, the process idles ([`VirtualTime::idle`]). Poll and idling
    /// may then be one step.
    fn will_idle(&mut self);
    /// The last poll was put off until the process idles. A caller that does not idle must poll
    /// again.
    fn poll_deferred(&self) -> bool;
    /// The process waits from now on. Returns a word and its value: sleep until it changes
    /// ([`crate::model::sleep`]). `None`: something has arrived.
    fn idle(&mut self) -> Option<(&'static AtomicU32, u32)>;
    /// Messages, and bytes in them, that the program has sent so far by this transport.
    fn note_sent(&mut self, messages: u64, bytes: u64);
}
