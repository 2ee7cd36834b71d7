//! What each algorithm loads on the ranks: messages, and bytes moved, reduced and copied. All of it
//! counts in one level, as if each rank had a node of its own.

use crate::algorithm::{Algorithm, Kind};
use crate::cost::{Cost, Problem};
use crate::step::power_below;
use Algorithm::*;

/// Messages and bytes: of the longest chain, or of all ranks together.
#[derive(Clone, Copy, Default)]
pub(crate) struct Load {
    /// Messages, in latencies: some that follow each other cost less than one each.
    pub(crate) messages: f64,
    /// How many these are.
    pub(crate) count: f64,
    /// Bytes that are sent.
    pub(crate) bytes: f64,
    /// Bytes that are reduced.
    pub(crate) reduced: f64,
    /// Bytes that are copied within a rank.
    pub(crate) copied: f64,
    /// How many copies these are, where there are many.
    pub(crate) copies: f64,
}

impl Load {
    /// So many messages, a latency each, with so many bytes in all.
    pub(super) fn sent(messages: f64, bytes: f64) -> Load {
        Load {
            messages,
            count: messages,
            bytes,
            ..Load::default()
        }
    }

    /// The same, of so many messages.
    pub(super) fn with_count(self, count: f64) -> Load {
        Load { count, ..self }
    }

    /// The same, with so many bytes to reduce.
    fn reduced(self, reduced: f64) -> Load {
        Load { reduced, ..self }
    }

    /// The same, with so many bytes to copy.
    pub(super) fn copied(self, copied: f64) -> Load {
        Load { copied, ..self }
    }

    /// The same, in so many copies.
    pub(super) fn with_copies(self, copies: f64) -> Load {
        Load { copies, ..self }
    }
}

/// The two loads that bound the time of an algorithm.
pub(crate) struct Loads {
    /// The longest chain of messages, each of which waits for the one before.
    pub(crate) path: Load,
    /// All ranks together.
    pub(crate) work: Load,
}

impl Problem {
    /// The loads of an algorithm in one level.
    pub(crate) fn loads(&self, algorithm: Algorithm, cost: &Cost) -> Loads {
        if let Some(pipeline) = self.pipeline(algorithm) {
            return pipeline.loads(self, cost);
        }
        let terms = Terms::of(self);
        match self.kind {
            Kind::Barrier => terms.barrier(algorithm),
            Kind::Bcast => terms.bcast(algorithm, cost),
            Kind::Reduce => terms.reduce(algorithm, cost),
            Kind::Allreduce => terms.allreduce(algorithm),
            Kind::Gather | Kind::Scatter => terms.gather(algorithm, cost),
            Kind::Allgather | Kind::Allgatherv => terms.allgather(algorithm),
            Kind::Alltoall if algorithm == Bruck => self.bruck_loads(self.bruck_radix(cost), cost),
            Kind::Alltoall => terms.alltoall(algorithm, cost),
            Kind::ReduceScatter => terms.reduce_scatter(algorithm, cost),
            Kind::Scan => terms.scan(algorithm),
        }
    }
}

/// The quantities of which the loads are made. The letters are those of the literature.
#[derive(Clone, Copy)]
struct Terms {
    /// Ranks.
    n: f64,
    /// Bytes, as in [`Problem::bytes`].
    m: f64,
    /// Rounds in which a message or a signal reaches all ranks: log2 of the ranks, rounded up.
    rounds: f64,
    /// Ranks of the greatest power of two that is at most `n`.
    power: f64,
    /// Ranks beyond that power. Each sends its data to another before, and gets the result after.
    rest: f64,
    /// Messages on the longest chain to fold the rest in: 1, or 0 if there is no rest.
    folded: f64,
    /// The part of the data that a rank gets from the others: (n - 1) / n.
    from_others: f64,
}

impl Terms {
    fn of(problem: &Problem) -> Terms {
        let n = f64::from(problem.ranks);
        let rest = n - f64::from(power_below(problem.ranks));
        Terms {
            n,
            m: problem.bytes as f64,
            rounds: f64::from(problem.ranks.next_power_of_two().ilog2()),
            power: n - rest,
            rest,
            folded: if rest > 0. { 1. } else { 0. },
            from_others: (n - 1.) / n,
        }
    }

    fn barrier(self, algorithm: Algorithm) -> Loads {
        let Terms { n, rounds, .. } = self;
        match algorithm {
            Dissemination => Loads {
                path: Load::sent(rounds, 0.),
                work: Load::sent(n * rounds, 0.),
            },
            _ => Loads {
                path: Load::sent(2. * rounds, 0.),
                work: Load::sent(2. * (n - 1.), 0.),
            },
        }
    }

    fn bcast(self, algorithm: Algorithm, cost: &Cost) -> Loads {
        let Terms {
            n,
            m,
            rounds,
            from_others,
            ..
        } = self;
        let segments = (m / f64::from(cost.segment_bytes)).ceil().max(1.0);
        let segment = m / segments;
        match algorithm {
            Flat => self.flat(cost.send_s, (n - 1.) * m, cost),
            Binomial => Loads {
                path: Load::sent(rounds, rounds * m),
                work: Load::sent(n - 1., (n - 1.) * m),
            },
            ScatterDoubling => Loads {
                path: Load::sent(2. * rounds, 2. * m * from_others),
                work: Load::sent((n - 1.) + n * rounds / 2., (n - 1.) * m + rounds * m / 2.),
            },
            ScatterRing => Loads {
                path: Load::sent(rounds + n - 1., 2. * m * from_others),
                work: Load::sent((n - 1.) + n * (n - 1.), (n - 1.) * m + rounds * m / 2.),
            },
            Chain => Loads {
                path: Load::sent(n + segments - 2., (n + segments - 2.) * segment),
                work: Load::sent((n - 1.) * segments, (n - 1.) * m),
            },
            // The binary tree: each rank sends a segment twice.
            _ => {
                let steps = rounds + segments - 1.;
                Loads {
                    path: Load::sent(steps, 2. * steps * segment),
                    work: Load::sent((n - 1.) * segments, (n - 1.) * m),
                }
            }
        }
    }

    fn reduce(self, algorithm: Algorithm, cost: &Cost) -> Loads {
        let Terms {
            n,
            m,
            rounds,
            rest,
            folded,
            from_others,
            ..
        } = self;
        match algorithm {
            Flat => {
                let reduced = (n - 1.) * m;
                let Loads { path, work } = self.flat(cost.overhead_s, (n - 1.) * m, cost);
                Loads {
                    path: path.reduced(reduced),
                    work: work.reduced(reduced),
                }
            }
            Halving => Loads {
                path: Load::sent(2. * rounds + folded, (2. * from_others + folded) * m)
                    .reduced((from_others + folded) * m),
                work: Load::sent(n * rounds + n, (n * from_others + n + rest) * m)
                    .reduced((n * from_others + rest) * m),
            },
            _ => Loads {
                path: Load::sent(rounds, rounds * m).reduced(rounds * m),
                work: Load::sent(n - 1., (n - 1.) * m).reduced((n - 1.) * m),
            },
        }
    }

    fn allreduce(self, algorithm: Algorithm) -> Loads {
        let Terms {
            n,
            m,
            rounds,
            power,
            rest,
            folded,
            from_others,
        } = self;
        let log_power = power.log2();
        match algorithm {
            Doubling => {
                let messages = log_power + 2. * folded;
                let all_messages = power * log_power + 2. * rest;
                Loads {
                    path: Load::sent(messages, messages * m).reduced((log_power + folded) * m),
                    work: Load::sent(all_messages, all_messages * m)
                        .reduced((power * log_power + rest) * m),
                }
            }
            Halving => Loads {
                path: Load::sent(
                    2. * log_power + 2. * folded,
                    (2. * from_others + 2. * folded) * m,
                )
                .reduced((from_others + folded) * m),
                work: Load::sent(
                    2. * power * log_power + 2. * rest,
                    (2. * power * from_others + 2. * rest) * m,
                )
                .reduced((power * from_others + rest) * m),
            },
            Ring => Loads {
                path: Load::sent(2. * (n - 1.), 2. * from_others * m).reduced(from_others * m),
                work: Load::sent(2. * n * (n - 1.), 2. * (n - 1.) * m).reduced((n - 1.) * m),
            },
            _ => Loads {
                path: Load::sent(2. * rounds, 2. * rounds * m).reduced(rounds * m),
                work: Load::sent(2. * (n - 1.), 2. * (n - 1.) * m).reduced((n - 1.) * m),
            },
        }
    }

    /// Gather and scatter.
    fn gather(self, algorithm: Algorithm, cost: &Cost) -> Loads {
        let Terms { n, m, rounds, .. } = self;
        match algorithm {
            Flat => self.flat(cost.overhead_s, (n - 1.) * m, cost),
            // Blocks of a subtree are packed into one message.
            _ => Loads {
                path: Load::sent(rounds, (n - 1.) * m).copied(rounds * m),
                work: Load::sent(n - 1., n * rounds / 2. * m).copied(n / 2. * m),
            },
        }
    }

    fn allgather(self, algorithm: Algorithm) -> Loads {
        let Terms {
            n,
            m,
            rounds,
            from_others,
            ..
        } = self;
        match algorithm {
            Doubling => Loads {
                path: Load::sent(rounds, from_others * m),
                work: Load::sent(n * rounds, (n - 1.) * m),
            },
            Bruck => Loads {
                path: Load::sent(rounds, from_others * m).copied(m),
                work: Load::sent(n * rounds, (n - 1.) * m).copied(n * m),
            },
            GatherBcast => Loads {
                path: Load::sent(2. * rounds, from_others * m + rounds * m),
                work: Load::sent(2. * (n - 1.), rounds * m / 2. + (n - 1.) * m),
            },
            _ => Loads {
                path: Load::sent(n - 1., from_others * m),
                work: Load::sent(n * (n - 1.), (n - 1.) * m),
            },
        }
    }

    fn alltoall(self, algorithm: Algorithm, cost: &Cost) -> Loads {
        let Terms { n, m, .. } = self;
        match algorithm {
            // Messages to all peers are under way at once, so they cost overhead rather than
            // latency.
            Spread => {
                let messages = 1. + (n - 1.) * (cost.overhead_s / cost.latency_s).min(1.);
                Loads {
                    path: Load::sent(messages, (n - 1.) * m).with_count(n - 1.),
                    work: Load::sent(n * (n - 1.), n * (n - 1.) * m),
                }
            }
            _ => Loads {
                path: Load::sent(n - 1., (n - 1.) * m),
                work: Load::sent(n * (n - 1.), n * (n - 1.) * m),
            },
        }
    }

    fn reduce_scatter(self, algorithm: Algorithm, cost: &Cost) -> Loads {
        let Terms {
            n,
            m,
            rounds,
            rest,
            folded,
            from_others,
            ..
        } = self;
        match algorithm {
            Halving => Loads {
                path: Load::sent(rounds + 2. * folded, (from_others + folded) * m)
                    .reduced((from_others + folded) * m),
                work: Load::sent(n * rounds + 2. * rest, (n * from_others + rest) * m)
                    .reduced((n * from_others + rest) * m),
            },
            Pairwise => Loads {
                path: Load::sent(n - 1., from_others * m).reduced(from_others * m),
                work: Load::sent(n * (n - 1.), (n - 1.) * m).reduced((n - 1.) * m),
            },
            // A reduction to one rank, which then scatters.
            _ => {
                let messages = rounds + 1. + (n - 1.) * cost.overhead_s / cost.latency_s;
                Loads {
                    path: Load::sent(messages, (rounds + from_others) * m).reduced(rounds * m),
                    work: Load::sent(2. * (n - 1.), n * m).reduced((n - 1.) * m),
                }
            }
        }
    }

    fn scan(self, algorithm: Algorithm) -> Loads {
        let Terms { n, m, rounds, .. } = self;
        match algorithm {
            Chain => {
                let each = Load::sent(n - 1., (n - 1.) * m).reduced((n - 1.) * m);
                Loads {
                    path: each,
                    work: each,
                }
            }
            _ => Loads {
                path: Load::sent(rounds, rounds * m).reduced(2. * rounds * m),
                work: Load::sent(n * rounds, n * rounds * m).reduced(1.5 * n * rounds * m),
            },
        }
    }

    /// One rank exchanges a message with each other one, `bytes` in all. It spends `each_s` on a
    /// message before the next one.
    fn flat(self, each_s: f64, bytes: f64, cost: &Cost) -> Loads {
        let others = self.n - 1.;
        let messages = 1. + others * each_s / cost.latency_s;
        Loads {
            path: Load::sent(messages, bytes).with_count(others),
            work: Load::sent(others, bytes),
        }
    }
}
