//! The table of performance variables.

use super::Class::{Aggregate, Counter, HighWatermark, Level, Timer};
use super::{Class, Metric};
use crate::tool::Category;

/// A variable of each transport, whose index the metric gets: class, end of its name, description.
pub(super) type OfTransport = (fn(usize) -> Metric, Class, &'static str, &'static str);

/// The variables that each transport has.
pub(super) const OF_EACH_TRANSPORT: [OfTransport; 4] = [
    (
        Metric::Sent,
        Counter,
        "messages_sent",
        "messages sent, those of collectives and of Ferry itself included",
    ),
    (
        Metric::SentBytes,
        Aggregate,
        "bytes_sent",
        "bytes in these messages",
    ),
    (
        Metric::Received,
        Counter,
        "messages_received",
        "messages that have arrived, or of which an announcement has",
    ),
    (
        Metric::ReceivedBytes,
        Aggregate,
        "bytes_received",
        "bytes in these messages",
    ),
];

/// A variable that there is once: metric, class, category, name, description.
pub(super) type Single = (Metric, Class, Category, &'static str, &'static str);

/// The variables that there are once, but for the counts of algorithms.
pub(super) const SINGLE: [Single; 18] = [
    (
        Metric::Refused,
        Counter,
        Category::TransportTcp,
        "tcp_connections_refused",
        "connections that were sent away: of strangers, or given up before they were made",
    ),
    (
        Metric::SentEager,
        Counter,
        Category::Protocols,
        "sent_eager",
        "messages sent at once",
    ),
    (
        Metric::SentAnnounced,
        Counter,
        Category::Protocols,
        "sent_announced",
        "large messages sent, which are announced first",
    ),
    (
        Metric::ReceivedEager,
        Counter,
        Category::Protocols,
        "received_eager",
        "messages that came at once",
    ),
    (
        Metric::ReceivedAnnounced,
        Counter,
        Category::Protocols,
        "received_announced",
        "large messages whose announcement has come",
    ),
    (
        Metric::Read,
        Counter,
        Category::Protocols,
        "messages_read",
        "messages that this process read from their sender's memory",
    ),
    (
        Metric::ReadBytes,
        Aggregate,
        Category::Protocols,
        "bytes_read",
        "bytes in these messages",
    ),
    (
        Metric::Unexpected,
        Counter,
        Category::Matching,
        "unexpected_messages",
        "messages that came before their receive",
    ),
    (
        Metric::QueueLength,
        Level,
        Category::Matching,
        "unexpected_queue_length",
        "messages that wait for their receive now",
    ),
    (
        Metric::QueueMost,
        HighWatermark,
        Category::Matching,
        "unexpected_queue_length_max",
        "most messages that have waited for their receives at once",
    ),
    (
        Metric::QueueBytes,
        Level,
        Category::Matching,
        "unexpected_queue_bytes",
        "bytes of waiting messages that are kept here, not at their sender",
    ),
    (
        Metric::CommQueueLength,
        Level,
        Category::Matching,
        "comm_unexpected_queue_length",
        "point-to-point messages of this communicator that wait for their receive now",
    ),
    (
        Metric::CommPosted,
        Level,
        Category::Matching,
        "comm_posted_receives",
        "point-to-point receives of this communicator that wait for their message now",
    ),
    (
        Metric::Idle,
        Timer,
        Category::Waiting,
        "time_waiting",
        "seconds spent in calls that wait, once they have nothing to do; waits of less \
     than a microsecond are not timed",
    ),
    (
        Metric::Sleeps,
        Counter,
        Category::Waiting,
        "sleeps",
        "how often a waiting thread has gone to sleep",
    ),
    (
        Metric::Yields,
        Counter,
        Category::Waiting,
        "yields",
        "how often a thread that waits, or asks again and again, has handed its core over",
    ),
    (
        Metric::CommCollectives,
        Counter,
        Category::CollectiveCounts,
        "comm_collectives",
        "collectives called on this communicator",
    ),
    (
        Metric::Board,
        Counter,
        Category::CollectiveCounts,
        "coll_by_board",
        "collectives by a board in the node's memory",
    ),
];
