//! `PMI_process_mapping`: which rank is on which node, in MPICH's compact form.

/// Parses `(vector,(first node,nodes,ranks on each),…)`. The list is repeated until all ranks have
/// a node. `None` if it is malformed.
pub(super) fn parse(text: &str, size: u32) -> Option<Vec<u32>> {
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let inner = compact.strip_prefix("(vector,")?.strip_suffix(')')?;
    let mut blocks = Vec::new();
    for block in inner.split("),") {
        let block = block.strip_prefix('(')?;
        let mut numbers = block
            .strip_suffix(')')
            .unwrap_or(block)
            .split(',')
            .map(|n| n.parse::<u32>().ok());
        let (first, nodes, each) = (numbers.next()??, numbers.next()??, numbers.next()??);
        if numbers.next().is_some() || nodes == 0 || each == 0 || first.checked_add(nodes).is_none()
        {
            return None;
        }
        blocks.push((first, nodes, each));
    }
    let mut node_of = Vec::new();
    while node_of.len() < size as usize {
        for &(first, nodes, each) in &blocks {
            for node in first..first + nodes {
                let room = size as usize - node_of.len();
                node_of.extend(std::iter::repeat_n(node, room.min(each as usize)));
                if node_of.len() == size as usize {
                    return Some(node_of);
                }
            }
        }
    }
    Some(node_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_hydra_and_slurm() {
        assert_eq!(parse("(vector,(0,1,4))", 4), Some(vec![0; 4]));
        assert_eq!(parse("(vector,(0,2,2))", 4), Some(vec![0, 0, 1, 1]));
        assert_eq!(parse("(vector,(0,2,1))", 4), Some(vec![0, 1, 0, 1]));
        assert_eq!(parse("(vector,(0,1,2),(1,1,1))", 3), Some(vec![0, 0, 1]));
        for wrong in [
            "",
            "(vector)",
            "(vector,)",
            "(vector,(0,0,1))",
            "(vector,(0,1))",
            "(vector,(4294967295,2,1))",
        ] {
            assert_eq!(parse(wrong, 3), None, "{wrong}");
        }
    }

    #[test]
    fn fuzz_process_mapping() {
        let seeds = ["(vector,(0,2,2))", "(vector,(0,1,2),(1,1,1))"].map(|s| s.as_bytes().to_vec());
        ferry_fuzz::fuzz("process mapping", &seeds, |bytes| {
            let read = parse(&String::from_utf8_lossy(bytes), 9);
            read.map(|nodes| {
                assert_eq!(nodes.len(), 9);
                nodes[8] % 5
            })
        });
    }
}
