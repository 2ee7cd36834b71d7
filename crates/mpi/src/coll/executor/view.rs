//! A call's buffers: borrowed from the call, and owned by a collective that outlives it.

use crate::Datatype;
use std::sync::Arc;

/// A buffer of a collective call.
#[derive(Clone, Copy)]
pub enum View<'a> {
    /// None, or one that is not significant at this rank.
    Nothing,
    /// Elements of one type, anywhere around `address`.
    Uniform {
        /// Address of element 0.
        address: *mut u8,
        /// Elements of the whole buffer; significant only where it is one message (broadcast).
        count: i64,
        /// Their type.
        datatype: &'a Arc<Datatype>,
    },
    /// A w-form's blocks.
    Blocks(&'a [Block]),
}

/// One block of a w-form.
#[derive(Clone)]
pub struct Block {
    /// Address of its element 0.
    pub address: *mut u8,
    /// Elements.
    pub count: i64,
    /// Their type.
    pub datatype: Arc<Datatype>,
}

// SAFETY: the addresses are the user's, lent to MPI until the operation completes; touched only by
// the operation.
unsafe impl Send for Block {}
// SAFETY: shared references do not reach through the address; only the operation does.
unsafe impl Sync for Block {}

/// A [`View`] with its own references, which outlives the call.
#[derive(Clone)]
pub(crate) enum OwnedView {
    Nothing,
    Uniform {
        address: *mut u8,
        count: i64,
        datatype: Arc<Datatype>,
    },
    Blocks(Arc<[Block]>),
}

// SAFETY: as for `Block`.
unsafe impl Send for OwnedView {}
// SAFETY: as for `Block`.
unsafe impl Sync for OwnedView {}

impl View<'_> {
    pub(crate) fn to_owned_view(self) -> OwnedView {
        match self {
            View::Nothing => OwnedView::Nothing,
            View::Uniform {
                address,
                count,
                datatype,
            } => OwnedView::Uniform {
                address,
                count,
                datatype: datatype.clone(),
            },
            View::Blocks(blocks) => OwnedView::Blocks(blocks.into()),
        }
    }
}

impl OwnedView {
    /// Takes the address and count of `view`, whose datatype is the same.
    #[inline]
    pub(crate) fn rebind(&mut self, view: &View<'_>) {
        if let (
            OwnedView::Uniform { address, count, .. },
            View::Uniform {
                address: now,
                count: new,
                ..
            },
        ) = (self, view)
        {
            (*address, *count) = (*now, *new);
        }
    }

    /// Moves the buffer's addresses by `by` bytes (wrapping).
    pub(crate) fn shift(&mut self, by: usize) {
        match self {
            OwnedView::Nothing => {}
            OwnedView::Uniform { address, .. } => *address = address.wrapping_add(by),
            OwnedView::Blocks(blocks) => {
                let moved = |b: &Block| Block {
                    address: b.address.wrapping_add(by),
                    ..b.clone()
                };
                *blocks = blocks.iter().map(moved).collect();
            }
        }
    }

    pub(crate) fn view(&self) -> View<'_> {
        match self {
            OwnedView::Nothing => View::Nothing,
            OwnedView::Uniform {
                address,
                count,
                datatype,
            } => View::Uniform {
                address: *address,
                count: *count,
                datatype,
            },
            OwnedView::Blocks(blocks) => View::Blocks(blocks),
        }
    }
}
