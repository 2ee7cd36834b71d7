//! Datatypes, packing, and counts of received elements (MPI 5.0 chapter 5).

mod pack;

pub use pack::*;

use crate::prelude::*;
use ferry_datatype::{Constructor, Dimension, MatchClass, Order, Width};
use ferry_mpi::attr;
use std::sync::atomic::Ordering;

fn width(large: bool) -> Width {
    if large { Width::Large } else { Width::Int }
}

fn width_of(array: &Ints) -> Width {
    width(matches!(array, Ints::Wide(_)))
}

/// Stores a new type and returns its handle.
fn make(constructor: Constructor, width: Width, newtype: &New<Datatype>) -> Result<()> {
    newtype.set(Datatype::new(constructor, width)?);
    Ok(())
}

/// Stores a type that the library keeps. Its handle is always the same.
fn give_shared(t: &Arc<Datatype>, newtype: &New<Datatype>) {
    match t.handle.load(Ordering::Acquire) {
        0 => newtype.set(t.clone()),
        handle => newtype.set_handle(handle),
    }
}

pub fn type_contiguous(
    count: (i64, bool),
    oldtype: DatatypeRef,
    newtype: New<Datatype>,
) -> Result<()> {
    make(
        Constructor::Contiguous {
            count: count.0,
            old: oldtype.clone(),
        },
        width(count.1),
        &newtype,
    )
}

pub fn type_vector(
    count: (i64, bool),
    blocklength: i64,
    stride: i64,
    oldtype: DatatypeRef,
    newtype: New<Datatype>,
) -> Result<()> {
    make(
        Constructor::Vector {
            count: count.0,
            blocklength,
            stride,
            old: oldtype.clone(),
        },
        width(count.1),
        &newtype,
    )
}

pub fn type_create_hvector(
    count: (i64, bool),
    blocklength: i64,
    stride: i64,
    oldtype: DatatypeRef,
    newtype: New<Datatype>,
) -> Result<()> {
    make(
        Constructor::Hvector {
            count: count.0,
            blocklength,
            stride,
            old: oldtype.clone(),
        },
        width(count.1),
        &newtype,
    )
}

/// Lengths and displacements of blocks.
type Blocks = (Box<[i64]>, Box<[i64]>);

/// The array arguments of an indexed constructor.
fn blocks(count: i64, lengths: &Ints, displacements: &Ints) -> Result<Blocks> {
    let lengths = lengths.all(count as usize, "array_of_blocklengths")?;
    let displacements = displacements.all(count as usize, "array_of_displacements")?;
    Ok((lengths.into(), displacements.into()))
}

pub fn type_indexed(
    count: (i64, bool),
    array_of_blocklengths: Ints,
    array_of_displacements: Ints,
    oldtype: DatatypeRef,
    newtype: New<Datatype>,
) -> Result<()> {
    let (blocklengths, displacements) =
        blocks(count.0, &array_of_blocklengths, &array_of_displacements)?;
    make(
        Constructor::Indexed {
            blocklengths,
            displacements,
            old: oldtype.clone(),
        },
        width(count.1),
        &newtype,
    )
}

pub fn type_create_hindexed(
    count: (i64, bool),
    array_of_blocklengths: Ints,
    array_of_displacements: Ints,
    oldtype: DatatypeRef,
    newtype: New<Datatype>,
) -> Result<()> {
    let (blocklengths, displacements) =
        blocks(count.0, &array_of_blocklengths, &array_of_displacements)?;
    make(
        Constructor::Hindexed {
            blocklengths,
            displacements,
            old: oldtype.clone(),
        },
        width(count.1),
        &newtype,
    )
}

pub fn type_create_indexed_block(
    count: (i64, bool),
    blocklength: i64,
    array_of_displacements: Ints,
    oldtype: DatatypeRef,
    newtype: New<Datatype>,
) -> Result<()> {
    let displacements = array_of_displacements
        .all(count.0 as usize, "array_of_displacements")?
        .into();
    make(
        Constructor::IndexedBlock {
            blocklength,
            displacements,
            old: oldtype.clone(),
        },
        width(count.1),
        &newtype,
    )
}

pub fn type_create_hindexed_block(
    count: (i64, bool),
    blocklength: i64,
    array_of_displacements: Ints,
    oldtype: DatatypeRef,
    newtype: New<Datatype>,
) -> Result<()> {
    let displacements = array_of_displacements
        .all(count.0 as usize, "array_of_displacements")?
        .into();
    make(
        Constructor::HindexedBlock {
            blocklength,
            displacements,
            old: oldtype.clone(),
        },
        width(count.1),
        &newtype,
    )
}

pub fn type_create_struct(
    count: (i64, bool),
    array_of_blocklengths: Ints,
    array_of_displacements: Ints,
    array_of_types: Types,
    newtype: New<Datatype>,
) -> Result<()> {
    let (blocklengths, displacements) =
        blocks(count.0, &array_of_blocklengths, &array_of_displacements)?;
    let types = array_of_types.all(count.0 as usize)?.into();
    make(
        Constructor::Struct {
            blocklengths,
            displacements,
            types,
        },
        width(count.1),
        &newtype,
    )
}

pub fn type_create_subarray(
    ndims: usize,
    array_of_sizes: Ints,
    array_of_subsizes: Ints,
    array_of_starts: Ints,
    order: i32,
    oldtype: DatatypeRef,
    newtype: New<Datatype>,
) -> Result<()> {
    let constructor = Constructor::Subarray {
        sizes: array_of_sizes.all(ndims, "array_of_sizes")?.into(),
        subsizes: array_of_subsizes.all(ndims, "array_of_subsizes")?.into(),
        starts: array_of_starts.all(ndims, "array_of_starts")?.into(),
        order: Order::of_value(order.into())?,
        old: oldtype.clone(),
    };
    make(constructor, width_of(&array_of_sizes), &newtype)
}

#[allow(clippy::too_many_arguments)] // MPI's own
pub fn type_create_darray(
    size: i32,
    rank: i32,
    ndims: usize,
    array_of_gsizes: Ints,
    array_of_distribs: &[i32],
    array_of_dargs: &[i32],
    array_of_psizes: &[i32],
    order: i32,
    oldtype: DatatypeRef,
    newtype: New<Datatype>,
) -> Result<()> {
    let sizes = array_of_gsizes.all(ndims, "array_of_gsizes")?;
    let dimensions: Vec<Dimension> = (0..ndims)
        .map(|i| {
            let (distribution, block) = (array_of_distribs[i].into(), array_of_dargs[i].into());
            Dimension::of_values(i, sizes[i], distribution, block, array_of_psizes[i].into())
        })
        .collect::<std::result::Result<_, _>>()?;
    let constructor = Constructor::Darray {
        size: size.into(),
        rank: rank.into(),
        dimensions: dimensions.into(),
        order: Order::of_value(order.into())?,
        old: oldtype.clone(),
    };
    make(constructor, width_of(&array_of_gsizes), &newtype)
}

pub fn type_create_resized(
    oldtype: DatatypeRef,
    lb: (i64, bool),
    extent: i64,
    newtype: New<Datatype>,
) -> Result<()> {
    make(
        Constructor::Resized {
            lb: lb.0,
            extent,
            old: oldtype.clone(),
        },
        width(lb.1),
        &newtype,
    )
}

/// A number of digits or a range. `None`: MPI_UNDEFINED, which means any.
fn digits_or_range(value: i32, name: &str) -> Result<Option<i64>> {
    match value {
        constants::MPI_UNDEFINED => Ok(None),
        0.. => Ok(Some(value.into())),
        _ => Err(err!(Arg, "{name} is {value}, but must not be negative")),
    }
}

pub fn type_create_f90_real(p: i32, r: i32, newtype: New<Datatype>) -> Result<()> {
    give_shared(
        &Datatype::f90_real(digits_or_range(p, "p")?, digits_or_range(r, "r")?)?,
        &newtype,
    );
    Ok(())
}

pub fn type_create_f90_complex(p: i32, r: i32, newtype: New<Datatype>) -> Result<()> {
    give_shared(
        &Datatype::f90_complex(digits_or_range(p, "p")?, digits_or_range(r, "r")?)?,
        &newtype,
    );
    Ok(())
}

pub fn type_create_f90_integer(r: i32, newtype: New<Datatype>) -> Result<()> {
    let Some(range) = digits_or_range(r, "r")? else {
        return Err(err!(
            Arg,
            "r is MPI_UNDEFINED, but must be a number of digits"
        ));
    };
    give_shared(&Datatype::f90_integer(range)?, &newtype);
    Ok(())
}

pub fn type_match_size(typeclass: i32, size: i32, datatype: New<Datatype>) -> Result<()> {
    let Some(class) = MatchClass::of_value(typeclass.into()) else {
        return Err(err!(
            Arg,
            "typeclass is {typeclass}, but must be MPI_TYPECLASS_INTEGER, _REAL or _COMPLEX"
        ));
    };
    let Some(found) = Datatype::match_size(class, size.into()) else {
        return Err(err!(
            Arg,
            "size is {size}, but no type of class {} has this many bytes",
            format!("{class:?}").to_lowercase()
        ));
    };
    give_shared(found, &datatype);
    Ok(())
}

pub fn type_get_value_index(
    value_type: DatatypeRef,
    index_type: DatatypeRef,
    pair_type: New<Datatype>,
) -> Result<()> {
    match Datatype::value_index(value_type, index_type)? {
        Some(pair) => give_shared(&pair, &pair_type),
        None => pair_type.set_null(),
    }
    Ok(())
}

pub fn type_dup(oldtype: DatatypeRef, newtype: New<Datatype>) -> Result<()> {
    let new = Datatype::dup(oldtype)?;
    attr::duplicate_type(oldtype, &new)?;
    newtype.set(new);
    Ok(())
}

pub fn type_commit(datatype: InOutHandle<Datatype>) -> Result<()> {
    datatype.object().commit();
    Ok(())
}

pub fn type_free(datatype: InOutHandle<Datatype>) -> Result<()> {
    let t = datatype.object();
    if t.is_predefined() {
        return Err(err!(
            Type,
            "datatype is {t:?}, which is predefined and cannot be freed"
        ));
    }
    attr::free_type(t)?;
    datatype.free()?;
    Ok(())
}

pub fn type_get_envelope(
    datatype: DatatypeRef,
    num_integers: OutCount,
    num_addresses: OutCount,
    num_large_counts: OutCount,
    num_datatypes: OutCount,
    combiner: Out<i32>,
) -> Result<()> {
    needs_large_form(
        datatype,
        num_large_counts.is_none(),
        "MPI_Type_get_envelope_c",
    )?;
    let counts = datatype.envelope();
    for (out, n) in [
        &num_integers,
        &num_addresses,
        &num_large_counts,
        &num_datatypes,
    ]
    .into_iter()
    .zip(counts)
    {
        out.set(n as i64);
    }
    combiner.set(datatype.combiner() as i32);
    Ok(())
}

/// Counts given as MPI_Count cannot be returned as int (MPI 5.0 §5.1.13).
fn needs_large_form(datatype: &Datatype, is_int_form: bool, large_form: &str) -> Result<()> {
    if is_int_form && datatype.is_large() {
        return Err(err!(
            Type,
            "datatype was made by a large-count constructor (_c): ask with {large_form}"
        ));
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)] // MPI's own
pub fn type_get_contents(
    datatype: DatatypeRef,
    max_integers: i64,
    max_addresses: i64,
    max_large_counts: i64,
    max_datatypes: i64,
    array_of_integers: OutInts,
    array_of_addresses: *mut i64,
    array_of_large_counts: *mut i64,
    array_of_datatypes: OutTypes,
) -> Result<()> {
    if matches!(datatype.constructor(), Constructor::Named(_)) {
        return Err(err!(
            Type,
            "datatype is {datatype:?}, which is predefined and has no contents"
        ));
    }
    let [integers, addresses, counts, datatypes] = datatype.envelope();
    // The int form has no large counts: its maximum is 0.
    needs_large_form(
        datatype,
        max_large_counts == 0 && counts > 0,
        "MPI_Type_get_contents_c",
    )?;
    let room = |name: &str, max: i64, needed: usize| match max >= needed as i64 {
        true => Ok(()),
        false => Err(err!(
            Arg,
            "{name} is {max}, but there are {needed} (see MPI_Type_get_envelope)"
        )),
    };
    room("max_integers", max_integers, integers)?;
    room("max_addresses", max_addresses, addresses)?;
    room("max_large_counts", max_large_counts, counts)?;
    room("max_datatypes", max_datatypes, datatypes)?;
    let there = |name: &str, missing: bool, needed: usize| match missing && needed > 0 {
        false => Ok(()),
        true => Err(err!(Arg, "{name} is null, but {needed} elements go there")),
    };
    there("array_of_integers", array_of_integers.is_none(), integers)?;
    there(
        "array_of_addresses",
        array_of_addresses.is_null(),
        addresses,
    )?;
    there(
        "array_of_large_counts",
        array_of_large_counts.is_null(),
        counts,
    )?;
    there(
        "array_of_datatypes",
        array_of_datatypes.is_none(),
        datatypes,
    )?;
    let contents = datatype.contents();
    array_of_integers.set_all(contents.integers.iter().map(|i| *i as i32));
    for (array, values) in [
        (array_of_addresses, contents.addresses),
        (array_of_large_counts, contents.counts),
    ] {
        for (i, value) in values.into_iter().enumerate() {
            // SAFETY: the program promises an array of that many elements.
            unsafe { array.add(i).write_unaligned(value) };
        }
    }
    for (i, t) in contents.datatypes.iter().enumerate() {
        array_of_datatypes.set(i, t.copy());
    }
    Ok(())
}

/// `value`, or MPI_UNDEFINED for a predefined type that this ABI does not have (MPI 5.0 §20.3).
fn or_undefined(datatype: &Datatype, value: i64) -> i64 {
    if datatype.exists() {
        value
    } else {
        constants::MPI_UNDEFINED.into()
    }
}

pub fn type_size(datatype: DatatypeRef, size: OutCount) -> Result<()> {
    size.set(or_undefined(datatype, datatype.size()));
    Ok(())
}

pub fn type_size_x(datatype: DatatypeRef, size: Out<i64>) -> Result<()> {
    size.set(or_undefined(datatype, datatype.size()));
    Ok(())
}

pub fn type_get_extent(datatype: DatatypeRef, lb: Out<i64>, extent: Out<i64>) -> Result<()> {
    lb.set(or_undefined(datatype, datatype.lb()));
    extent.set(or_undefined(datatype, datatype.extent()));
    Ok(())
}

pub fn type_get_extent_x(datatype: DatatypeRef, lb: Out<i64>, extent: Out<i64>) -> Result<()> {
    type_get_extent(datatype, lb, extent)
}

pub fn type_get_true_extent(
    datatype: DatatypeRef,
    true_lb: Out<i64>,
    true_extent: Out<i64>,
) -> Result<()> {
    true_lb.set(or_undefined(datatype, datatype.true_lb()));
    true_extent.set(or_undefined(datatype, datatype.true_extent()));
    Ok(())
}

pub fn type_get_true_extent_x(
    datatype: DatatypeRef,
    true_lb: Out<i64>,
    true_extent: Out<i64>,
) -> Result<()> {
    type_get_true_extent(datatype, true_lb, true_extent)
}

pub fn type_set_name(datatype: DatatypeRef, type_name: &CStr) -> Result<()> {
    let name = String::from_utf8_lossy(type_name.to_bytes()).into_owned();
    *datatype.name.lock().unwrap_or_else(|e| e.into_inner()) = Some(name);
    Ok(())
}

pub fn type_get_name(
    datatype: Option<DatatypeRef>,
    type_name: OutText,
    resultlen: Out<i32>,
) -> Result<()> {
    let name = datatype.map_or_else(|| "MPI_DATATYPE_NULL".to_owned(), |t| t.label());
    resultlen.set(type_name.set(name));
    Ok(())
}

pub fn get_address(location: *const u8, address: Out<i64>) -> Result<()> {
    address.set(location.expose_provenance() as i64);
    Ok(())
}

/// A count, or MPI_UNDEFINED.
fn number(n: Option<u64>) -> i64 {
    n.and_then(|n| i64::try_from(n).ok())
        .unwrap_or(constants::MPI_UNDEFINED.into())
}

pub fn get_count(status: &Status, datatype: DatatypeRef, count: OutCount) -> Result<()> {
    count.set(number(datatype.count_in(status.bytes())));
    Ok(())
}

pub fn get_elements(status: &Status, datatype: DatatypeRef, count: OutCount) -> Result<()> {
    count.set(number(datatype.elements_in(status.bytes())));
    Ok(())
}

pub fn get_elements_x(status: &Status, datatype: DatatypeRef, count: Out<i64>) -> Result<()> {
    count.set(number(datatype.elements_in(status.bytes())));
    Ok(())
}

pub fn status_set_elements(status: &mut Status, datatype: DatatypeRef, count: i64) -> Result<()> {
    let Ok(elements) = u64::try_from(count) else {
        return Err(err!(Count, "count is {count}, which is negative"));
    };
    let Some(bytes) = datatype.bytes_of_elements(elements) else {
        return Err(err!(
            Count,
            "count is {count}, but so many elements of {datatype:?} are no message"
        ));
    };
    status.set_bytes(bytes);
    Ok(())
}

pub fn status_set_elements_x(status: &mut Status, datatype: DatatypeRef, count: i64) -> Result<()> {
    status_set_elements(status, datatype, count)
}
