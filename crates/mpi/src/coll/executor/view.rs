//! A call's buffers: as the call has them, and owned by a collective that outlives it.

use crate::Datatype;
use std::sync::Arc;

/// A buffer of a collective call.
#[derive(Clone, Copy)]
pub enum View<'a> {
    /// There is none here, or it is not significant.
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

/// A [`View`] that outlives the call which it came with.
#[derive(Clone)]
pub(crate) enum LastingView {
    Nothing,
    Uniform {
        address: *mut u8,
        count: i64,
        datatype: Arc<Datatype>,
    },
    Blocks(Arc<[Block]>),
}

// SAFETY: as for `Block`.
unsafe impl Send for LastingView {}
// SAFETY: as for `Block`.
unsafe impl Sync for LastingView {}

impl View<'_> {
    pub(crate) fn keep(&self) -> LastingView {
        match *self {
            View::Nothing => LastingView::Nothing,
            View::Uniform {
                address,
                count,
                datatype,
            } => LastingView::Uniform {
                address,
                count,
                datatype: datatype.clone(),
            },
            View::Blocks(blocks) => LastingView::Blocks(blocks.into()),
        }
    }
}

impl LastingView {
    /// The buffer is that of `view`, which is alike but for its address.
    #[inline]
    pub(crate) fn renew(&mut self, view: &View<'_>) {
        if let (
            LastingView::Uniform { address, count, .. },
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

    /// The buffer is elsewhere: so many bytes (wrapping) from where it was.
    pub(crate) fn shift(&mut self, by: usize) {
        match self {
            LastingView::Nothing => {}
            LastingView::Uniform { address, .. } => *address = address.wrapping_add(by),
            LastingView::Blocks(blocks) => {
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
            LastingView::Nothing => View::Nothing,
            LastingView::Uniform {
                address,
                count,
                datatype,
            } => View::Uniform {
                address: *address,
                count: *count,
                datatype,
            },
            LastingView::Blocks(blocks) => View::Blocks(blocks),
        }
    }
}
