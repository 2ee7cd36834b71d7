//! Copies between layouts, the temporary buffer, and pieces.

use super::*;
use crate::coll::executor::tmp_buffer::INLINE_BYTES;
use ferry_datatype::Basic;
use proptest::prelude::*;

fn bytes() -> &'static Arc<Datatype> {
    Datatype::basic(Basic::Byte)
}

fn strided(blocks: i64, length: i64, stride: i64) -> Arc<Datatype> {
    let t = Datatype::vector(blocks, length, stride, bytes()).unwrap();
    t.commit();
    t
}

fn scattered(buffer: &mut [u8], datatype: &Arc<Datatype>) -> Vec<u8> {
    let mut out = vec![0; datatype.size() as usize];
    // SAFETY: the buffer holds one element.
    unsafe { datatype.pack(buffer.as_ptr(), 1, 0, &mut out) };
    out
}

proptest! {
    /// From any form to any form, whatever the pieces' sizes.
    #[test]
    fn copies_between_layouts(
        (blocks, length) in (1i64..40, 1i64..3000),
        gap in 1i64..5,
        from_run: bool,
        into_run: bool,
    ) {
        let len = (blocks * length) as usize;
        let (a, b) = (strided(blocks, length, length + gap), strided(length, blocks, blocks + gap));
        let mut from: Vec<u8> = (0..(blocks * (length + gap)) as usize)
            .map(|i| (i * 7 % 251) as u8)
            .collect();
        let mut into = vec![0u8; (length * (blocks + gap)) as usize];
        let wanted = if from_run { from[..len].to_vec() } else { scattered(&mut from, &a) };
        let run = |p: *mut u8| Memory::Run { address: p, len };
        let laid = |p: *mut u8, t| Memory::Scattered { address: p, count: 1, datatype: t, skip: 0,
            len };
        let source = if from_run { run(from.as_mut_ptr()) } else { laid(from.as_mut_ptr(), &a) };
        let target = if into_run { run(into.as_mut_ptr()) } else { laid(into.as_mut_ptr(), &b) };
        // SAFETY: both buffers hold one element of their type.
        let same = unsafe { source.copy_to(&target) };
        prop_assert!(same);
        let got = if into_run { into[..len].to_vec() } else { scattered(&mut into, &b) };
        prop_assert_eq!(got, wanted);
    }

    /// Every element of the buffer lies within it, wherever the type begins and however far apart
    /// its elements are.
    #[test]
    fn room_holds_all_its_elements(units in 1i64..20, lb in -50i64..50, extent in -40i64..40) {
        let t = Datatype::resized(lb, extent, &strided(3, 5, 11)).unwrap();
        t.commit();
        let mut tmp = TmpBuffer::new(units, Some(&t));
        let base = tmp.address();
        prop_assert_eq!(base.align_offset(16), 0);
        let data: Vec<u8> = (0..15).collect();
        for i in 0..units {
            // SAFETY: an element of the tmp, as this test is to show (under a memory checker, too).
            unsafe { t.unpack(offset(base, i, &t), 1, 0, &data) };
        }
        let large = tmp.large.capacity() * 16;
        let capacity = if large > 0 { large } else { INLINE_BYTES };
        let last = (units - 1) * extent;
        prop_assert!(t.true_lb() + last.min(0) + tmp.before as i64 >= 0);
        let end = tmp.before as i64 + t.true_lb() + t.true_extent() + last.max(0);
        prop_assert!(end <= capacity as i64);
    }
}

#[test]
fn pieces_are_found() {
    let t = strided(2, 1, 3);
    let dense = bytes();
    let base = 0x10000 as *mut u8;
    let buffers = Buffers {
        send: View::Uniform {
            address: base,
            count: 1,
            datatype: &t,
        },
        recv: View::Uniform {
            address: base,
            count: 1,
            datatype: dense,
        },
        element: None,
    };
    let mut tmp = TmpBuffer::new(8, None);
    let extent = t.extent() as usize;
    match buffers.locate(Piece::send(2, 3), &mut tmp) {
        Memory::Scattered {
            address,
            count,
            len,
            ..
        } => {
            assert_eq!((address as usize, count, len), (0x10000 + 2 * extent, 3, 6));
        }
        Memory::Run { .. } => panic!("a vector is not one run"),
    }
    match buffers.locate(Piece::recv(-4, 5), &mut tmp) {
        Memory::Run { address, len } => assert_eq!((address as usize, len), (0x10000 - 4, 5)),
        Memory::Scattered { .. } => panic!("bytes are one run"),
    }
    assert_eq!(buffers.locate(Piece::EMPTY, &mut tmp).len(), 0);
}
