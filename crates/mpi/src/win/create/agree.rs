//! What the ranks of a new window agree on before it is made: steps 1 to 3.

use super::super::control::{Layout, NodeMembers};
use super::super::memory::CardMemory;
use super::super::remote;
use super::super::target::{Extent, Extents};
use super::{NewWindow, card_offer, offset_of};
use crate::coll::or_bits;
use crate::comm::agree::{Agreement, Reader, put_framed, put_u64};
use crate::device::{self, ContextId, SegmentKey, SharedRange};
use crate::process::process;
use crate::{Comm, Result, err};
use std::sync::Arc;

/// What rank 0 tells all ranks.
pub(super) struct Agreed {
    /// Of the window's own communicator.
    pub(super) context: ContextId,
    /// For notifications of the card, if it is free in this process.
    pub(super) slot: u32,
    /// Size and displacement unit of each rank's memory.
    pub(super) extents: Extents,
    /// The node's range, where all ranks are on one node.
    pub(super) range: Option<NodeRange>,
}

/// What the first rank of a node tells the others of the node.
#[derive(Clone, Copy)]
pub(super) struct NodeRange {
    /// `None`: the node has no shared memory, or not enough.
    pub(super) range: Option<SharedRange>,
    /// Each rank's memory lies by itself.
    pub(super) noncontig: bool,
    /// There is shared memory.
    pub(super) has_memory: bool,
}

impl NewWindow<'_> {
    /// Steps 1 and 2. With all ranks on one node also step 3.
    pub(super) fn agree(&self, members: &NodeMembers, card: Option<&CardMemory>) -> Result<Agreed> {
        let one_node = members.len() == self.comm.size() as usize;
        if one_node
            && members.len() > 1
            && let Some(agreed) = self.agree_if_same(members)?
        {
            return Ok(agreed);
        }
        let agreement = Agreement::of_all(self.comm)?;
        let notifies = card_offer().notify;
        let mut mine = Vec::new();
        self.extent(card).put(&mut mine);
        if notifies {
            mine.extend(remote::taken().to_le_bytes());
        }
        let gathered = agreement.gather(0, mine)?;
        let decided = match agreement.rank() {
            0 => self.decide(members, &gathered, notifies, one_node)?,
            _ => Vec::new(),
        };
        // The same tag serves once more: between two processes messages keep their order.
        let decided = agreement.broadcast(0, decided)?;
        self.read_decision(&decided, one_node)
    }

    /// What rank 0 tells all ranks, from what they have told it.
    fn decide(
        &self,
        members: &NodeMembers,
        gathered: &[u8],
        notifies: bool,
        one_node: bool,
    ) -> Result<Vec<u8>> {
        let mut reader = Reader(gathered);
        let mut all = Vec::with_capacity(self.comm.size() as usize);
        let mut taken = 0;
        while !reader.is_empty() {
            all.push(Extent::read(&mut reader)?);
            if notifies {
                taken |= reader.u128()?;
            }
        }
        let extents = Extents::new(all);
        let slot = match notifies {
            true => remote::free_slot(taken),
            false => remote::NO_SLOT,
        };
        let mut bytes = Vec::new();
        put_u64(&mut bytes, process().new_context().0);
        put_u64(&mut bytes, slot.into());
        if one_node {
            self.allocate(members, &extents).put(&mut bytes);
        }
        let mut list = Vec::new();
        match &extents {
            Extents::Same(extent) => extent.put(&mut list),
            Extents::Each(all) => all.iter().for_each(|extent| extent.put(&mut list)),
        }
        put_framed(&mut bytes, &list);
        Ok(bytes)
    }

    /// The reverse of [`NewWindow::decide`].
    fn read_decision(&self, bytes: &[u8], one_node: bool) -> Result<Agreed> {
        let mut reader = Reader(bytes);
        let context = reader.context()?;
        let slot = reader.u64()? as u32;
        let range = one_node.then(|| NodeRange::read(&mut reader)).transpose()?;
        let mut list = Reader(reader.framed()?);
        let mut all = Vec::new();
        while !list.is_empty() {
            all.push(Extent::read(&mut list)?);
        }
        if all.len() != 1 && all.len() != self.comm.size() as usize {
            return Err(err!(
                Intern,
                "a message about a new window makes no sense: do all processes make the same call?"
            ));
        }
        Ok(Agreed {
            context,
            slot,
            extents: Extents::new(all),
            range,
        })
    }

    /// Steps 1 and 2 on one node, in one small collective. `None`: sizes or displacement units
    /// differ.
    ///
    /// Two numbers are equal if neither has a bit that the other lacks, nor lacks one that the
    /// other has. Rank 0 expects that they are, and allocates.
    fn agree_if_same(&self, members: &NodeMembers) -> Result<Option<Agreed>> {
        let extents = Extents::Same(self.extent(None));
        let (size, unit) = (self.size as u64, self.disp_unit as u64);
        let mut words = [size, !size, unit, !unit, 0, 0, 0, 0];
        let mut allocated = None;
        if self.comm.rank() == 0 {
            let node = self.allocate(members, &extents);
            allocated = node.range;
            words[4] = process().new_context().0;
            words[5..].copy_from_slice(&node.encode());
        }
        or_bits(self.comm, &mut words)?;
        let [size, no_size, unit, no_unit, context, node @ ..] = words;
        if size & no_size != 0 || unit & no_unit != 0 {
            let d = device::device();
            if let Some((range, memory)) = allocated.zip(d.shared_memory()) {
                memory.release(range);
            }
            return Ok(None);
        }
        Ok(Some(Agreed {
            context: ContextId(context),
            slot: remote::NO_SLOT,
            extents,
            range: Some(NodeRange::decode(node)),
        }))
    }

    /// Step 3 where the ranks are on several nodes.
    pub(super) fn agree_on_node(
        &self,
        comm: &Arc<Comm>,
        members: &NodeMembers,
        extents: &Extents,
    ) -> Result<NodeRange> {
        // Taken by all ranks, also by those that are alone on their node.
        let tag = comm.next_agreement();
        if members.len() == 1 {
            return Ok(self.allocate(members, extents));
        }
        let ranks: Vec<i32> = (0..members.len()).map(|m| members.rank(m) as i32).collect();
        let group = comm.group.include(&ranks)?;
        let agreement = Agreement::new(comm, comm.context.control(), tag, &group)?;
        let mut bytes = Vec::new();
        if agreement.rank() == 0 {
            self.allocate(members, extents).put(&mut bytes);
        }
        NodeRange::read(&mut Reader(&agreement.broadcast(0, bytes)?))
    }

    /// Allocates the node's range, on its first rank.
    fn allocate(&self, members: &NodeMembers, extents: &Extents) -> NodeRange {
        let noncontig = self.noncontig();
        let none = NodeRange {
            range: None,
            noncontig,
            has_memory: false,
        };
        let Some(memory) = device::device().shared_memory() else {
            return none;
        };
        let layout = Layout::new(members.len(), self.flavor);
        let end = if self.allocates() {
            offset_of(members, members.len(), extents, noncontig, layout)
        } else {
            Some(layout.bytes() as u64)
        };
        NodeRange {
            range: end.and_then(|end| memory.allocate(end).ok()),
            has_memory: true,
            ..none
        }
    }
}

impl Extent {
    fn put(self, out: &mut Vec<u8>) {
        put_u64(out, self.size);
        put_u64(out, self.disp_unit as u64);
        put_framed(
            out,
            self.key.map(SegmentKey::encode).as_ref().map_or(&[], |k| k),
        );
    }

    fn read(reader: &mut Reader<'_>) -> Result<Extent> {
        Ok(Extent {
            size: reader.u64()?,
            disp_unit: reader.u64()? as i64,
            key: reader.framed()?.try_into().ok().map(SegmentKey::decode),
        })
    }
}

impl NodeRange {
    fn encode(self) -> [u64; 3] {
        let range = self.range.unwrap_or(SharedRange { offset: 0, len: 0 });
        let flags = u64::from(self.noncontig) | u64::from(self.has_memory) << 1;
        [range.offset, range.len, flags]
    }

    fn decode([offset, len, flags]: [u64; 3]) -> NodeRange {
        NodeRange {
            range: (len > 0).then_some(SharedRange { offset, len }),
            noncontig: flags & 1 != 0,
            has_memory: flags & 2 != 0,
        }
    }

    fn put(self, out: &mut Vec<u8>) {
        self.encode().iter().for_each(|word| put_u64(out, *word));
    }

    fn read(reader: &mut Reader<'_>) -> Result<NodeRange> {
        let words = [reader.u64()?, reader.u64()?, reader.u64()?];
        Ok(NodeRange::decode(words))
    }
}
