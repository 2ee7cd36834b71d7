//! Encodings, traces of launchers, and the wait for an abort's text.

use super::detect::lost_launcher;
use super::encoding::{cpu_mask, hex, mask_cpus, unhex};
use super::job_end::wait_until_read;

#[test]
fn hexadecimal_goes_both_ways() {
    assert_eq!(hex(&[0, 255, 16]), "00ff10");
    assert_eq!(unhex("00ff10"), Some(vec![0, 255, 16]));
    assert!(unhex("0").is_none() && unhex("zz").is_none());
    assert_eq!(mask_cpus(&cpu_mask(&[0, 3, 17], 1024)), [0, 3, 17]);
}

#[test]
fn last_words_are_waited_for() {
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicBool, Ordering};
    let (reads, writes) = rustix::pipe::pipe().unwrap();
    wait_until_read(writes.as_fd());
    rustix::io::write(&writes, b"MPI_Abort").unwrap();
    let read = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            read.store(true, Ordering::SeqCst);
            rustix::io::read(&reads, &mut [0u8; 16]).unwrap();
        });
        wait_until_read(writes.as_fd());
        assert!(read.load(Ordering::SeqCst));
    });
    let file = std::fs::File::open("/dev/null").unwrap();
    wait_until_read(file.as_fd());
}

#[test]
fn a_rank_without_its_launcher_is_told_so() {
    let with = |set: &'static [(&str, &str)]| {
        lost_launcher(move |name| {
            let found = set.iter().find(|(n, _)| *n == name);
            found.map(|(_, v)| v.to_string())
        })
        .map(|e| e.to_string())
    };
    assert!(with(&[]).is_none());
    assert!(with(&[("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_PROCID", "0")]).is_none());
    let said = with(&[("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "0")]).unwrap();
    assert!(said.contains("--mpi=pmix"), "{said}");
    assert!(with(&[("PMI_SIZE", "4"), ("FERRY_SIZE", "4")]).is_none());
    assert!(with(&[("PMI_SIZE", "4")]).unwrap().contains("PMI_FD"));
    assert!(
        with(&[("OMPI_COMM_WORLD_SIZE", "2")])
            .unwrap()
            .contains("PMIX_NAMESPACE")
    );
}
