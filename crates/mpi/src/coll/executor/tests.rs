//! Who does a schedule's own work: the caller, a thread of the program that waits, or the progress
//! thread. In one process, with itself as its only peer and a progress thread on another core.

use super::background::{BackgroundRun, Bound};
use super::run::COPY_SLICE_BYTES;
use super::*;
use crate::device::{self, Background, WaitingFor};
use ferry_datatype::Basic;
use ferry_op::Predefined;
use ferry_schedule::{Collective, Peer, Piece, Schedule, Step};
use std::sync::Mutex;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// The cores that this thread may use.
fn cores() -> Vec<usize> {
    // SAFETY: the call writes the set, for which zeros are valid.
    unsafe {
        let mut set = std::mem::zeroed::<libc::cpu_set_t>();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &mut set), 0);
        (0..libc::CPU_SETSIZE as usize)
            .filter(|&c| libc::CPU_ISSET(c, &set))
            .collect()
    }
}

/// This thread, and those that it starts, run on `core`.
fn settle(core: usize) {
    // SAFETY: the call reads the set, for which zeros are valid.
    unsafe {
        let mut set = std::mem::zeroed::<libc::cpu_set_t>();
        libc::CPU_SET(core, &mut set);
        assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &set), 0);
    }
}

fn view(buffer: &mut [u8]) -> View<'static> {
    View::Uniform {
        address: buffer.as_mut_ptr(),
        count: buffer.len() as i64,
        datatype: Datatype::basic(Basic::Byte),
    }
}

fn schedule(steps: &[Step]) -> Arc<Schedule> {
    Arc::new(Schedule {
        steps: steps.to_vec(),
        ..Schedule::default()
    })
}

fn copy(at: usize, len: usize) -> Step {
    Step::Copy {
        from: Piece::send(0, len as i64),
        into: Piece::recv(at as i64, len as i64),
    }
}

fn background(steps: &[Step], b: &CollArgs<'_>) -> Arc<BackgroundRun> {
    let any = Function::of(&Collective::Barrier, Form::NonBlocking);
    let tag = CollTag::next(b.comm, any, -1);
    BackgroundRun::new(Bound::Once(BoundSchedule::new(schedule(steps), b, tag)))
}

/// Waits without MPI.
fn stay_away(work: &BackgroundRun) {
    let end = Instant::now() + Duration::from_secs(60);
    while !work.flag.is_set() {
        assert!(Instant::now() < end, "the progress thread does not do it");
        std::hint::spin_loop();
    }
}

fn wait(work: &BackgroundRun) {
    device::wait_until(&WaitingFor::SEVERAL, |_| work.flag.is_set());
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % below
    }
}

fn filled(len: usize, dice: &mut Dice) -> Vec<u8> {
    let first = dice.next(251);
    (0..len).map(|i| ((first + i) % 251) as u8).collect()
}

fn bind<'a>(comm: &'a Arc<Comm>, send: &mut [u8], recv: &mut [u8]) -> CollArgs<'a> {
    CollArgs {
        comm,
        send: view(send),
        recv: view(recv),
        reduction: None,
        root: -1,
    }
}

/// A long copy is not the caller's, as long as it does not wait; a short one is.
fn left_to_the_thread(comm: &Arc<Comm>) {
    for len in [MIB, MIB + 1, 3 * COPY_SLICE_BYTES, COPY_SLICE_BYTES * 5 - 1] {
        let (mut send, mut recv) = (filled(len, &mut Dice(len as u64)), vec![0; len]);
        let b = bind(comm, &mut send, &mut recv);
        let work = background(&[copy(0, len)], &b);
        let mut d = device::device();
        assert!(work.is_urgent(&d));
        d.add_background(work.clone());
        // The thread cannot have had the device yet.
        assert!(!work.flag.is_set() && recv.iter().all(|&x| x == 0));
        drop(d);
        stay_away(&work);
        assert_eq!(send, recv);
    }
    let (mut send, mut recv) = (filled(4096, &mut Dice(1)), vec![0; 4096]);
    let b = bind(comm, &mut send, &mut recv);
    let work = background(&[copy(0, 4096)], &b);
    let mut d = device::device();
    assert!(!work.is_urgent(&d));
    d.add_background(work.clone());
    assert!(work.flag.is_set());
    assert_eq!(send, recv);
}

/// Who waits does it itself, at once.
fn done_by_who_waits(comm: &Arc<Comm>) {
    let (mut send, mut recv) = (filled(MIB, &mut Dice(2)), vec![0; MIB]);
    let b = bind(comm, &mut send, &mut recv);
    let work = background(&[copy(0, MIB)], &b);
    let (mut begun, mut turns) = (false, 0);
    device::wait_until(&WaitingFor::SEVERAL, |d| {
        turns += 1;
        if turns == 1 {
            return false; // it waits only from here on
        }
        if !std::mem::replace(&mut begun, true) {
            d.add_background(work.clone());
            assert!(work.flag.is_set());
        }
        true
    });
    assert_eq!(send, recv);
}

/// What the thread has begun is taken over where it stands; what comes after a copy comes after it.
fn taken_over(comm: &Arc<Comm>) {
    let mut dice = Dice(3);
    for round in 0..300 {
        let mut all = Vec::new();
        for _ in 0..1 + dice.next(3) {
            let len = 1 + dice.next(2 * MIB);
            let (mut send, mut recv) = (filled(len, &mut dice), vec![0; 2 * len]);
            let b = bind(comm, &mut send, &mut recv);
            let me = Peer::Local(0);
            let steps = [
                Step::Recv {
                    peer: me,
                    into: Piece::recv(len as i64, len as i64),
                },
                copy(0, len),
                Step::Send {
                    peer: me,
                    from: Piece::recv(0, len as i64),
                },
            ];
            let work = background(&steps, &b);
            device::device().add_background(work.clone());
            all.push((send, recv, work));
        }
        for _ in 0..dice.next(3) * 1000 {
            std::hint::spin_loop();
        }
        for _ in 0..dice.next(3) {
            device::device().progress();
        }
        for (send, recv, work) in &all {
            match round % 4 {
                0 => stay_away(work),
                _ => wait(work),
            }
            assert_eq!(send[..], recv[..send.len()]);
            assert_eq!(send[..], recv[send.len()..]);
        }
    }
}

/// A predefined reduction is the thread's, too; the program's own operation is called by the
/// program's thread alone.
fn reductions(comm: &Arc<Comm>) {
    let callers = Arc::new(Mutex::new(Vec::<ThreadId>::new()));
    let seen = callers.clone();
    let own = Op::user(
        Box::new(move |from, into, count, _| {
            seen.lock().unwrap().push(std::thread::current().id());
            for i in 0..count as usize {
                // SAFETY: both hold `count` bytes.
                unsafe { *into.add(i) ^= *from.add(i) };
            }
        }),
        true,
    );
    for op in [Op::of(Predefined::Bxor), &own] {
        let (mut send, mut recv) = (filled(MIB, &mut Dice(4)), vec![0; MIB]);
        let b = CollArgs {
            reduction: Some((op, Datatype::basic(Basic::Byte))),
            ..bind(comm, &mut send, &mut recv)
        };
        let add = Step::Reduce {
            from: Piece::send(0, MIB as i64),
            into: Piece::recv(0, MIB as i64),
        };
        let work = background(&[copy(0, MIB), add, add], &b);
        device::device().add_background(work.clone());
        if Arc::ptr_eq(op, &own) {
            wait(&work);
        } else {
            stay_away(&work);
        }
        assert_eq!(send, recv);
    }
    let me = std::thread::current().id();
    assert_eq!(*callers.lock().unwrap(), [me, me]);
}

/// Set in the process of [`own_work`].
const IN_OWN_PROCESS: &str = "OWN_WORK_IN_OWN_PROCESS";

/// One test in a process of its own: there is one device in a process, and another test uses it.
#[test]
fn own_work() {
    if std::env::var_os(IN_OWN_PROCESS).is_some() {
        return who_does_own_work();
    }
    let test = std::env::current_exe().unwrap();
    let run = std::process::Command::new(test)
        .args(["--exact", "coll::executor::tests::own_work"])
        .env(IN_OWN_PROCESS, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && told.contains("1 passed"), "{told}");
}

fn who_does_own_work() {
    let cores = cores();
    if cores.len() < 2 {
        return; // nothing is left to a thread on the same core
    }
    let job = ferry_job::join().unwrap();
    // The progress thread stays where it is started.
    settle(cores[1]);
    device::start(
        &job.rank_info,
        job.segment,
        job.directory,
        job.status,
        false,
        true,
    )
    .unwrap();
    device::start_progress_thread().unwrap();
    settle(cores[0]);
    let comm = Comm::comm_self(0);
    // Until the thread has told where it is.
    let end = Instant::now() + Duration::from_secs(60);
    while !device::device().offloads_work(MIB) {
        assert!(Instant::now() < end);
        std::thread::yield_now();
    }
    left_to_the_thread(&comm);
    done_by_who_waits(&comm);
    taken_over(&comm);
    reductions(&comm);
    device::stop_progress_thread();
}
