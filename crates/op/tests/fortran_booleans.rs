//! Another Fortran compiler's .TRUE.: a setting of the whole process, hence a test program of its
//! own.

use ferry_datatype::{Basic, Datatype};
use ferry_op::{FortranBooleans, Op, Predefined};

#[test]
fn reductions_follow_the_fortran_compiler() {
    let run = |op, basic: Basic, a: &[i64], b: &mut [i64]| {
        assert_eq!(basic.size(), 8);
        // SAFETY: both slices hold as many LOGICALs of eight bytes.
        unsafe {
            Op::of(op).apply(
                a.as_ptr().cast(),
                b.as_mut_ptr().cast(),
                a.len() as i64,
                Datatype::basic(basic),
            )
        };
    };
    assert_eq!(FortranBooleans::current(), None);
    let a = [0, 0, 1, 5, -1, 2];
    let mut b = [0, 7, 0, 1, 4, 2];
    run(Predefined::Land, Basic::Logical8, &a, &mut b);
    assert_eq!(
        b,
        [0, 0, 0, 1, 1, 1],
        "without a setting: 1 and 0, and whatever is not 0 is true"
    );

    let intel = FortranBooleans {
        size: 4,
        true_value: -1,
        false_value: 0,
    };
    assert!(intel.set());
    assert!(
        !FortranBooleans {
            size: 4,
            true_value: 1,
            false_value: 0
        }
        .set(),
        "once only"
    );
    assert_eq!(FortranBooleans::current(), Some(intel));
    let mut b = [0, 7, 0, 1, 4, 2];
    run(Predefined::Lxor, Basic::Logical8, &a, &mut b);
    assert_eq!(b, [0, -1, -1, 0, 0, 0]);
    let (a, mut b) = ([0i8, 1, -1], [0i8, 0, -1]);
    // SAFETY: both arrays hold three LOGICALs of one byte.
    unsafe {
        Op::of(Predefined::Lor).apply(
            a.as_ptr().cast(),
            b.as_mut_ptr().cast(),
            3,
            Datatype::basic(Basic::Logical1),
        )
    };
    assert_eq!(b, [0, -1, -1]);
}
