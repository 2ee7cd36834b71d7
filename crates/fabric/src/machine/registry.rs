//! The registry: the kinds of card that a machine file can name, and the machines that come with
//! Ferry. This is the one place that names them.
//!
//! A new kind of card is a folder beside `remote_write`, `dimmnet2` and `rapidio`. It needs a
//! variant of [`Nic`], an arm of [`Nic::kind`], an arm of [`read_nic`] and its name in [`KINDS`].

use super::Machine;
use super::file::{FileError, read_tables};
use crate::card_kind::CardKind;
use crate::{dimmnet2, rapidio, remote_write};
use serde::{Deserialize, Serialize};

/// The card of a machine, with its figures.
#[expect(clippy::large_enum_variant, reason = "a process has one of it")]
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Nic {
    /// A card with remote write: kinds `remote-write`, `loggp`, and MPC's `fasthsl`.
    RemoteWrite(remote_write::Figures),
    /// DIMMnet-2, in a memory slot.
    Dimmnet2(Box<dimmnet2::Figures>),
    /// A RapidIO controller.
    Rapidio(Box<rapidio::Figures>),
}

impl Nic {
    /// What the card can do.
    pub fn kind(&self) -> &dyn CardKind {
        match self {
            Nic::RemoteWrite(figures) => figures,
            Nic::Dimmnet2(figures) => figures.as_ref(),
            Nic::Rapidio(figures) => figures.as_ref(),
        }
    }
}

/// The kinds of card that a file can name, in `nic.kind`.
pub(super) const KINDS: [&str; 5] = ["remote-write", "loggp", "fasthsl", "dimmnet2", "rapidio"];

/// Reads a machine file whose card is of this kind. `None`: there is no such kind.
pub(super) fn read_nic(kind: &str, file: &str, text: &str) -> Option<Result<Machine, FileError>> {
    Some(match kind {
        "remote-write" | "fasthsl" => read_tables(file, text, Nic::RemoteWrite),
        "loggp" => read_tables(file, text, |f: remote_write::Loggp| {
            Nic::RemoteWrite(f.into())
        }),
        "dimmnet2" => read_tables(file, text, |f| Nic::Dimmnet2(Box::new(f))),
        "rapidio" => read_tables(file, text, |f| Nic::Rapidio(Box::new(f))),
        _ => return None,
    })
}

/// A machine file that is built in.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// What `--machine` calls it.
    pub name: &'static str,
    /// Its file.
    pub text: &'static str,
}

macro_rules! machines {
    ($($name:literal),* $(,)?) => {
        /// All of them, by name.
        const BUILT_IN: &[BuiltIn] = &[$(BuiltIn {
            name: $name,
            text: include_str!(concat!("../../../../machines/", $name, ".toml")),
        }),*];
    };
}

machines![
    "cluster40",
    "dimmnet2",
    "dimmnet2-planned",
    "loggp",
    "mpc1",
    "mpc2",
    "mpc3",
    "rapidio-1890vm6",
    "rapidio-1890vm6-driver2000",
    "rapidio-1890vm6-io256",
    "rapidio-1890vm6-unaligned",
    "rapidio-1890vm6-walk"
];

/// The machines that come with Ferry.
pub fn built_in() -> impl Iterator<Item = BuiltIn> {
    BUILT_IN.iter().copied()
}
