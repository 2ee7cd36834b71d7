//! Virtual topologies (MPI 5.0 chapter 8).

use super::group::rank_or_undefined;
use crate::prelude::*;
use ferry_mpi::topo::{self, Cart, DistGraph, Edge, Graph, Topology, Weighted};

fn cart(comm: &'static Comm) -> Result<&'static Cart> {
    match comm.topology.get().map(|t| &**t) {
        Some(Topology::Cart(cart)) => Ok(cart),
        _ => Err(err!(Topology, "comm has no Cartesian topology")),
    }
}

fn graph(comm: &'static Comm) -> Result<&'static Graph> {
    match comm.topology.get().map(|t| &**t) {
        Some(Topology::Graph(graph)) => Ok(graph),
        _ => Err(err!(Topology, "comm has no graph topology")),
    }
}

fn dist_graph(comm: &'static Comm) -> Result<&'static DistGraph> {
    match comm.topology.get().map(|t| &**t) {
        Some(Topology::DistGraph(graph)) => Ok(graph),
        _ => Err(err!(Topology, "comm has no distributed graph topology")),
    }
}

fn rank_in(comm: &Comm, rank: i32, name: &str) -> Result<u32> {
    if (0..comm.size() as i32).contains(&rank) {
        return Ok(rank as u32);
    }
    Err(err!(
        Rank,
        "{name} is {rank}, but the communicator has {} ranks",
        comm.size()
    ))
}

fn rank_or_proc_null(rank: Option<u32>) -> i32 {
    rank.map_or(constants::MPI_PROC_NULL, |r| r as i32)
}

/// Checks that an array has room for `needed` of what the call stores. `name`: the argument that
/// says how much room there is.
fn check_room(room: usize, name: &str, needed: usize, what: &str) -> Result<()> {
    if room >= needed {
        Ok(())
    } else {
        Err(err!(Arg, "{name} is {room}, but there are {needed} {what}"))
    }
}

pub fn topo_test(comm: CommRef, status: Out<i32>) -> Result<()> {
    status.set(match comm.topology.get().map(|t| &**t) {
        None => constants::MPI_UNDEFINED,
        Some(Topology::Cart(_)) => constants::MPI_CART,
        Some(Topology::Graph(_)) => constants::MPI_GRAPH,
        Some(Topology::DistGraph(_)) => constants::MPI_DIST_GRAPH,
    });
    Ok(())
}

pub fn dims_create(nnodes: i32, _ndims: usize, dims: &mut [i32]) -> Result<()> {
    let mut wide: Vec<i64> = dims.iter().map(|&d| i64::from(d)).collect();
    topo::dims_create(i64::from(nnodes), &mut wide)?;
    for (dim, wide) in dims.iter_mut().zip(wide) {
        *dim = wide as i32;
    }
    Ok(())
}

fn new_cart(comm: &Comm, dims: &[i32], periods: &[i32]) -> Result<Cart> {
    Cart::new(
        dims,
        &periods.iter().map(|&p| p != 0).collect::<Vec<_>>(),
        comm.size(),
    )
}

pub fn cart_create(
    comm_old: CommRef,
    _ndims: usize,
    dims: &[i32],
    periods: &[i32],
    _reorder: bool,
    comm_cart: New<Comm>,
) -> Result<()> {
    comm_cart.set_or_null(comm_old.cart_create(new_cart(comm_old, dims, periods)?)?);
    Ok(())
}

pub fn cart_map(
    comm: CommRef,
    _ndims: usize,
    dims: &[i32],
    _periods: &[i32],
    newrank: Out<i32>,
) -> Result<()> {
    let size = Cart::grid_size(dims, comm.size())?;
    newrank.set(rank_or_undefined(Some(comm.rank()).filter(|&r| r < size)));
    Ok(())
}

pub fn cart_sub(comm: CommRef, remain_dims: Ints, newcomm: New<Comm>) -> Result<()> {
    let keep = remain_dims.all(cart(comm)?.dims().len(), "remain_dims")?;
    let keep: Vec<bool> = keep.into_iter().map(|k| k != 0).collect();
    newcomm.set(comm.cart_sub(&keep)?);
    Ok(())
}

pub fn cartdim_get(comm: CommRef, ndims: Out<i32>) -> Result<()> {
    ndims.set(cart(comm)?.dims().len() as i32);
    Ok(())
}

pub fn cart_get(
    comm: CommRef,
    maxdims: usize,
    dims: OutInts,
    periods: OutInts,
    coords: OutInts,
) -> Result<()> {
    let cart = cart(comm)?;
    check_room(maxdims, "maxdims", cart.dims().len(), "dimensions")?;
    dims.set_all(cart.dims().iter().map(|&d| d as i32));
    periods.set_all(cart.periodic().iter().map(|&p| i32::from(p)));
    coords.set_all(cart.coords(comm.rank()).into_iter().map(|c| c as i32));
    Ok(())
}

pub fn cart_rank(comm: CommRef, coords: Ints, rank: Out<i32>) -> Result<()> {
    let cart = cart(comm)?;
    rank.set(cart.rank(&coords.all(cart.dims().len(), "coords")?)? as i32);
    Ok(())
}

pub fn cart_coords(comm: CommRef, rank: i32, maxdims: usize, coords: OutInts) -> Result<()> {
    let cart = cart(comm)?;
    let rank = rank_in(comm, rank, "rank")?;
    check_room(maxdims, "maxdims", cart.dims().len(), "dimensions")?;
    coords.set_all(cart.coords(rank).into_iter().map(|c| c as i32));
    Ok(())
}

pub fn cart_shift(
    comm: CommRef,
    direction: i32,
    disp: i32,
    rank_source: Out<i32>,
    rank_dest: Out<i32>,
) -> Result<()> {
    let cart = cart(comm)?;
    if !(0..cart.dims().len() as i32).contains(&direction) {
        return Err(err!(
            Arg,
            "direction is {direction}, but there are {} dimensions",
            cart.dims().len()
        ));
    }
    let (source, dest) = cart.shift(comm.rank(), direction as usize, i64::from(disp));
    rank_source.set(rank_or_proc_null(source));
    rank_dest.set(rank_or_proc_null(dest));
    Ok(())
}

fn new_graph(comm: &Comm, nnodes: i32, indx: &[i32], edges: Ints) -> Result<Graph> {
    if !(0..=comm.size() as i32).contains(&nnodes) {
        return Err(err!(
            Arg,
            "nnodes is {nnodes}, but the communicator has {} ranks",
            comm.size()
        ));
    }
    if edges.is_none() && indx.last().is_some_and(|&n| n > 0) {
        return Err(err!(Arg, "edges is null"));
    }
    Graph::new(indx, |i| edges.at(i))
}

pub fn graph_create(
    comm_old: CommRef,
    nnodes: i32,
    indx: &[i32],
    edges: Ints,
    _reorder: bool,
    comm_graph: New<Comm>,
) -> Result<()> {
    comm_graph.set_or_null(comm_old.graph_create(new_graph(comm_old, nnodes, indx, edges)?)?);
    Ok(())
}

pub fn graph_map(
    comm: CommRef,
    nnodes: i32,
    indx: &[i32],
    edges: Ints,
    newrank: Out<i32>,
) -> Result<()> {
    let nodes = new_graph(comm, nnodes, indx, edges)?.index().len() as u32;
    newrank.set(rank_or_undefined(Some(comm.rank()).filter(|&r| r < nodes)));
    Ok(())
}

pub fn graphdims_get(comm: CommRef, nnodes: Out<i32>, nedges: Out<i32>) -> Result<()> {
    let graph = graph(comm)?;
    nnodes.set(graph.index().len() as i32);
    nedges.set(graph.edges().len() as i32);
    Ok(())
}

pub fn graph_get(
    comm: CommRef,
    maxindex: usize,
    maxedges: usize,
    indx: OutInts,
    edges: OutInts,
) -> Result<()> {
    let graph = graph(comm)?;
    check_room(maxindex, "maxindex", graph.index().len(), "nodes")?;
    check_room(maxedges, "maxedges", graph.edges().len(), "edges")?;
    indx.set_all(graph.index().iter().map(|&i| i as i32));
    edges.set_all(graph.edges().iter().map(|&e| e as i32));
    Ok(())
}

pub fn graph_neighbors_count(comm: CommRef, rank: i32, nneighbors: Out<i32>) -> Result<()> {
    nneighbors.set(graph(comm)?.neighbours(rank_in(comm, rank, "rank")?).len() as i32);
    Ok(())
}

pub fn graph_neighbors(
    comm: CommRef,
    rank: i32,
    maxneighbors: usize,
    neighbors: OutInts,
) -> Result<()> {
    let all = graph(comm)?.neighbours(rank_in(comm, rank, "rank")?);
    check_room(maxneighbors, "maxneighbors", all.len(), "neighbours")?;
    neighbors.set_all(all.iter().map(|&r| r as i32));
    Ok(())
}

/// The first `count` weights. `None`: the graph has no weights.
fn weights(weights: Weights, count: usize, name: &str) -> Result<Option<Vec<i32>>> {
    match weights {
        Weights::None => Ok(None),
        Weights::Empty if count == 0 => Ok(Some(Vec::new())),
        Weights::Empty => Err(err!(
            Arg,
            "{name} is MPI_WEIGHTS_EMPTY, but there are {count} edges"
        )),
        // SAFETY: the program passes as many weights as edges.
        Weights::At(at) => unsafe { args::slice(at, count, name) }.map(|w| Some(w.to_vec())),
    }
}

/// Negative weights have no meaning (MPI 5.0 §8.5.4).
fn not_negative(weights: &Option<Vec<i32>>, name: &str) -> Result<()> {
    match weights.iter().flatten().enumerate().find(|(_, w)| **w < 0) {
        None => Ok(()),
        Some((i, w)) => Err(err!(Arg, "{name}[{i}] is {w}: weights are not negative")),
    }
}

pub fn dist_graph_create_adjacent(
    comm_old: CommRef,
    indegree: usize,
    sources: &[i32],
    sourceweights: Weights,
    outdegree: usize,
    destinations: &[i32],
    destweights: Weights,
    info: Option<InfoRef>,
    _reorder: bool,
    comm_dist_graph: New<Comm>,
) -> Result<()> {
    let hints = super::comm::hints(info);
    hints.check()?;
    let ends =
        |ranks: &[i32], name: &str, w: Weights, count: usize, of: &str| -> Result<Weighted> {
            let ranks = ranks.iter().enumerate();
            let ranks = ranks
                .map(|(i, &r)| rank_in(comm_old, r, &format!("{name}[{i}]")))
                .collect::<Result<_>>()?;
            let weights = weights(w, count, of)?;
            not_negative(&weights, of)?;
            Ok(Weighted { ranks, weights })
        };
    if matches!(sourceweights, Weights::None) != matches!(destweights, Weights::None) {
        return Err(err!(
            Arg,
            "one of sourceweights and destweights is MPI_UNWEIGHTED, the other is not"
        ));
    }
    let graph = DistGraph {
        sources: ends(sources, "sources", sourceweights, indegree, "sourceweights")?,
        destinations: ends(
            destinations,
            "destinations",
            destweights,
            outdegree,
            "destweights",
        )?,
    };
    let new = comm_old.dist_graph_create_adjacent(graph)?;
    new.set_hints(&hints)?;
    comm_dist_graph.set(new);
    Ok(())
}

pub fn dist_graph_create(
    comm_old: CommRef,
    _n: usize,
    sources: &[i32],
    degrees: &[i32],
    destinations: Ints,
    edge_weights: Weights,
    info: Option<InfoRef>,
    _reorder: bool,
    comm_dist_graph: New<Comm>,
) -> Result<()> {
    let hints = super::comm::hints(info);
    hints.check()?;
    if let Some((i, d)) = degrees.iter().enumerate().find(|(_, d)| **d < 0) {
        return Err(err!(Arg, "degrees[{i}] is {d}, which is negative"));
    }
    let count = degrees.iter().map(|&d| d as usize).sum();
    let destinations = destinations.all(count, "destinations")?;
    let all_weights = weights(edge_weights, count, "weights")?;
    not_negative(&all_weights, "weights")?;
    let mut edges = Vec::with_capacity(count);
    for (i, (&source, &degree)) in sources.iter().zip(degrees).enumerate() {
        let source = rank_in(comm_old, source, &format!("sources[{i}]"))?;
        for _ in 0..degree {
            let at = edges.len();
            let destination = rank_in(
                comm_old,
                destinations[at] as i32,
                &format!("destinations[{at}]"),
            )?;
            let weight = all_weights.as_ref().map_or(0, |w| w[at]);
            edges.push(Edge {
                source,
                destination,
                weight,
            });
        }
    }
    let new = comm_old.dist_graph_create(&edges, all_weights.is_some())?;
    new.set_hints(&hints)?;
    comm_dist_graph.set(new);
    Ok(())
}

pub fn dist_graph_neighbors_count(
    comm: CommRef,
    indegree: Out<i32>,
    outdegree: Out<i32>,
    weighted: Out<i32>,
) -> Result<()> {
    let graph = dist_graph(comm)?;
    indegree.set(graph.sources.ranks.len() as i32);
    outdegree.set(graph.destinations.ranks.len() as i32);
    weighted.set(i32::from(graph.is_weighted()));
    Ok(())
}

pub fn dist_graph_neighbors(
    comm: CommRef,
    maxindegree: usize,
    sources: OutInts,
    sourceweights: OutInts,
    maxoutdegree: usize,
    destinations: OutInts,
    destweights: OutInts,
) -> Result<()> {
    let graph = dist_graph(comm)?;
    // For MPI_UNWEIGHTED nothing is stored.
    let store = |ends: &Weighted, room: usize, ranks: OutInts, weights: OutInts| {
        ranks.set_all(ends.ranks.iter().map(|&r| r as i32));
        weights.set_all(ends.weights.iter().flatten().take(room).copied());
    };
    store(&graph.sources, maxindegree, sources, sourceweights);
    store(&graph.destinations, maxoutdegree, destinations, destweights);
    Ok(())
}
