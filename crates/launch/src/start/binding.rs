//! Which CPUs each rank may use.

use std::path::Path;

use ferry_job::Cores;

use super::topology;
use crate::options::Binding;

/// CPUs for each of `ranks` ranks. An empty list: not bound.
///
/// By default each rank gets an equal share of the cores if there is a core for each. A rank's own
/// threads then have cores, too. With more ranks than cores none is bound. Sockets, NUMA nodes,
/// third-level caches, cores and hardware threads are given to the ranks in turn.
///
/// # Errors
/// One line if the kernel does not say which CPUs belong together.
pub fn assign_cpus(
    ranks: usize,
    cores: &Cores,
    binding: Binding,
) -> Result<Vec<Vec<usize>>, String> {
    let free = vec![Vec::new(); ranks];
    Ok(match binding {
        Binding::Socket | Binding::Numa | Binding::L3Cache | Binding::HwThread => {
            let groups = topology::groups(Path::new(topology::CPUS), cores, binding)?;
            if groups.is_empty() {
                return Ok(free);
            }
            (0..ranks)
                .map(|r| groups[r % groups.len()].clone())
                .collect()
        }
        Binding::None => free,
        Binding::Share if ranks < 2 || ranks > cores.usable() => free,
        Binding::Share if ranks <= cores.cores.len() => {
            let n = cores.cores.len();
            (0..ranks)
                .map(|r| cores.cores[r * n / ranks..(r + 1) * n / ranks].concat())
                .collect()
        }
        Binding::Share | Binding::Core => {
            // One CPU each: first the first hardware thread of each core, then the second ones.
            let depth = cores.cores.iter().map(Vec::len).max().unwrap_or(0);
            let order: Vec<usize> = (0..depth)
                .flat_map(|t| cores.cores.iter().filter_map(move |c| c.get(t)).copied())
                .collect();
            if order.is_empty() {
                free
            } else {
                (0..ranks).map(|r| vec![order[r % order.len()]]).collect()
            }
        }
    })
}

/// CPU numbers as a mask for the kernel. Empty for none.
pub fn mask(cpus: &[usize]) -> Vec<u64> {
    let words = cpus.iter().max().map_or(0, |most| most / 64 + 1);
    let mut mask = vec![0; words];
    for cpu in cpus {
        mask[cpu / 64] |= 1 << (cpu % 64);
    }
    mask
}

/// A binding in words.
pub fn described(cpus: &[usize]) -> String {
    match cpus {
        [] => "free to move between cores".into(),
        [cpu] => format!("bound to CPU {cpu}"),
        many => format!(
            "bound to CPUs {}",
            many.iter()
                .map(usize::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(ranks: usize, cores: &Cores, binding: Binding) -> Vec<Vec<usize>> {
        assign_cpus(ranks, cores, binding).unwrap()
    }

    fn cores(cores: &[&[usize]], quota: Option<f64>) -> Cores {
        Cores {
            cores: cores.iter().map(|c| c.to_vec()).collect(),
            quota,
        }
    }

    #[test]
    fn one_core_each_when_they_just_fit() {
        let two = cores(&[&[0], &[1]], None);
        assert_eq!(assigned(2, &two, Binding::Share), [vec![0], vec![1]]);
        assert_eq!(assigned(3, &two, Binding::Share), [vec![], vec![], vec![]]);
        assert_eq!(assigned(1, &two, Binding::Share), [vec![]]);
        assert_eq!(
            assigned(3, &two, Binding::Core),
            [vec![0], vec![1], vec![0]]
        );
        assert_eq!(assigned(2, &two, Binding::None), [vec![], vec![]]);
    }

    #[test]
    fn whole_cores_are_shared_out() {
        let four = cores(&[&[0, 4], &[1, 5], &[2, 6], &[3, 7]], None);
        assert_eq!(
            assigned(2, &four, Binding::Share),
            [vec![0, 4, 1, 5], vec![2, 6, 3, 7]]
        );
        assert_eq!(assigned(2, &four, Binding::Core), [vec![0], vec![1]]);
        assert_eq!(
            assigned(8, &four, Binding::Share).concat(),
            [0, 1, 2, 3, 4, 5, 6, 7]
        );
    }

    #[test]
    fn hardware_threads_in_turn() {
        let two = cores(&[&[0, 2], &[1, 3]], None);
        let each = assigned(5, &two, Binding::HwThread);
        assert_eq!(each, [[0], [2], [1], [3], [0]]);
    }

    #[test]
    fn a_quota_counts() {
        let four = cores(&[&[0], &[1], &[2], &[3]], Some(2.0));
        assert_eq!(
            assigned(3, &four, Binding::Share).concat(),
            Vec::<usize>::new()
        );
        assert_eq!(assigned(2, &four, Binding::Share), [vec![0, 1], vec![2, 3]]);
    }

    #[test]
    fn masks() {
        assert_eq!(mask(&[0, 3, 64]), [0b1001, 1]);
        assert!(mask(&[]).is_empty());
    }
}
