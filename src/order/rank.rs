//! The rank of this process, from its launcher or from the caller.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::order::Partition;
use std::num::NonZero;
use std::str::FromStr;

/// One process of several that train together: its rank, the world size, and its place among the processes of its
/// machine.
///
/// ```
/// use warpfeed::{Device, Rank, Partition};
///
/// // The rank under mpirun, torchrun or srun. A process that was started alone is the only rank.
/// let rank = Rank::from_environment()?.unwrap_or_default();
/// assert_eq!(rank.partition().world_size(), rank.world_size());
///
/// let rank: Rank = "5/8".parse()?;
/// assert_eq!((rank.partition(), rank.device()), (Partition::new(5, 8)?, Device::Cuda(5)));
/// // Two machines of four GPUs.
/// assert_eq!(rank.on_machine(1, 4)?.device(), Device::Cuda(1));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rank {
    partition: Partition,
    local: Partition,
}

impl Default for Rank {
    /// Rank 0 of 1.
    fn default() -> Self {
        Self { partition: Partition::WHOLE, local: Partition::WHOLE }
    }
}

/// The environment variables by which a launcher tells a process its rank.
struct Launcher {
    name: &'static str,
    rank: &'static str,
    /// Variables for the number of ranks. The first one that is set counts.
    count: &'static [&'static str],
    local_rank: &'static str,
    local_count: LocalCount,
}

/// The way in which a launcher tells the number of processes on this machine.
enum LocalCount {
    /// A variable that holds the number.
    Of(&'static str),
    /// Slurm's list for all machines, as in `4(x2),3`, from the first of these variables that is set, and the variable
    /// with the number of this machine.
    Listed(&'static [&'static str], &'static str),
}

/// The launchers, inner ones first. A process inherits the variables of outer launchers: torchrun may run under srun,
/// and mpirun in an allocation of Slurm's.
///
/// From the manuals of torchrun, Open MPI (mpirun, "Environment variables"), MPICH's Hydra and Intel MPI (`PMI_*`,
/// `MPI_LOCAL*`), and Slurm (srun, "Output environment variables"). Slurm's variables for a step come before those for
/// the job, because a batch script outside of any step has only the latter.
const LAUNCHERS: [Launcher; 4] = [
    Launcher {
        name: "torchrun",
        rank: "RANK",
        count: &["WORLD_SIZE"],
        local_rank: "LOCAL_RANK",
        local_count: LocalCount::Of("LOCAL_WORLD_SIZE"),
    },
    Launcher {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        count: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_count: LocalCount::Of("OMPI_COMM_WORLD_LOCAL_SIZE"),
    },
    Launcher {
        name: "PMI",
        rank: "PMI_RANK",
        count: &["PMI_SIZE"],
        local_rank: "MPI_LOCALRANKID",
        local_count: LocalCount::Of("MPI_LOCALNRANKS"),
    },
    Launcher {
        name: "Slurm",
        rank: "SLURM_PROCID",
        count: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local_rank: "SLURM_LOCALID",
        local_count: LocalCount::Listed(&["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"], "SLURM_NODEID"),
    },
];

impl Rank {
    /// Rank `rank` of `world_size`, counted from 0, with all ranks on one machine. For several machines add
    /// [`on_machine`](Self::on_machine).
    ///
    /// # Errors
    /// [`Error::Parameter`] unless `rank` is below `world_size`.
    pub fn new(rank: u32, world_size: u32) -> Result<Self> {
        let partition = Partition::new(rank, world_size)?;
        Ok(Self { partition, local: partition })
    }

    /// The same rank, as process `index` of `count` on its machine, counted from 0.
    ///
    /// # Errors
    /// [`Error::Parameter`] unless `index` is below `count`, and `count` at most that of all.
    pub fn on_machine(self, index: u32, count: u32) -> Result<Self> {
        if count > self.world_size() {
            let expected = format!("at most {}, the number of all processes", self.world_size());
            return Err(Error::parameter("rank", "processes on this machine", expected, count));
        }
        Ok(Self { local: Partition::new(index, count)?, ..self })
    }

    /// Reads the environment variables of torchrun, Open MPI, PMI (MPICH, Intel MPI) or Slurm, in this order. `None` if
    /// none of these launchers set its variables. If a launcher does not say which processes share the machine, all of
    /// them are assumed to.
    ///
    /// # Errors
    /// [`Error::Parameter`] with the variable, if its value makes no sense or contradicts the others.
    pub fn from_environment() -> Result<Option<Self>> {
        Self::from_variables(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let number = |name: &'static str| -> Result<Option<u32>> {
            let Some(text) = get(name) else { return Ok(None) };
            let wrong = || Error::parameter("rank", name, "a whole number", format!("{text:?}"));
            text.trim().parse().map(Some).map_err(|_| wrong())
        };
        for launcher in LAUNCHERS {
            let count = launcher.count.iter().find(|&&name| get(name).is_some());
            // A launcher sets both variables. If only one is set, another program set it, with another meaning.
            let (Some(&count_name), true) = (count, get(launcher.rank).is_some()) else { continue };
            let (index, count) = (number(launcher.rank)?.unwrap_or(0), number(count_name)?.unwrap_or(0));
            let unfit = |error: Error| {
                let expected = format!("such that {} and {count_name} fit each other", launcher.rank);
                Error::parameter("rank", "variables of the launcher", expected, format!("{error} ({})", launcher.name))
            };
            let rank = Self::new(index, count).map_err(unfit)?;
            let Some(local) = number(launcher.local_rank)? else { return Ok(Some(rank)) };
            let local_count = match launcher.local_count {
                LocalCount::Of(name) => number(name)?,
                LocalCount::Listed(lists, node) => {
                    let list = lists.iter().find_map(|&name| get(name));
                    list.zip(number(node)?).and_then(|(list, node)| listed(&list, node))
                }
            };
            return rank.on_machine(local, local_count.unwrap_or(count)).map_err(unfit).map(Some);
        }
        Ok(None)
    }

    /// The rank, from 0.
    #[must_use]
    pub const fn rank(self) -> u32 {
        self.partition.rank()
    }

    /// The number of ranks.
    #[must_use]
    pub const fn world_size(self) -> u32 {
        self.partition.world_size()
    }

    /// This rank's part of an epoch, for [`PipelineBuilder::partition`](crate::PipelineBuilder::partition).
    #[must_use]
    pub const fn partition(self) -> Partition {
        self.partition
    }

    /// This rank's GPU: the one whose number is the process's number on its machine.
    #[must_use]
    pub const fn device(self) -> Device {
        Device::Cuda(self.local.rank())
    }

    /// Worker threads for this rank, for [`PipelineBuilder::threads`](crate::PipelineBuilder::threads): the processors
    /// that this process may use, divided among the processes of the machine, less one for the training process itself;
    /// at least 1.
    ///
    /// If the launcher has already bound each process to processors of its own, they would be divided twice. Then give
    /// the number of threads yourself, or tell the launcher not to bind (`mpirun --bind-to none`).
    #[must_use]
    pub fn threads(self) -> usize {
        self.threads_of(std::thread::available_parallelism().map_or(1, NonZero::get))
    }

    fn threads_of(self, processors: usize) -> usize {
        (processors / self.local.world_size() as usize).saturating_sub(1).max(1)
    }
}

impl FromStr for Rank {
    type Err = Error;

    /// Reads `rank/world_size`, as in `0/4`.
    fn from_str(text: &str) -> Result<Self> {
        let partition: Partition = text.parse()?;
        Self::new(partition.rank(), partition.world_size())
    }
}

/// The entry of machine `node` in Slurm's list: `4(x2),3` is 4, 4, 3.
fn listed(list: &str, node: u32) -> Option<u32> {
    let mut before = 0_u32;
    for part in list.split(',') {
        let (count, times) = match part.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        before = before.checked_add(times)?;
        if node < before {
            return count.trim().parse().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(variables: &[(&str, &str)]) -> Result<Option<Rank>> {
        Rank::from_variables(|name| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
        })
    }

    const TORCHRUN: &[(&str, &str)] =
        &[("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "4")];
    const OPEN_MPI: &[(&str, &str)] = &[
        ("OMPI_COMM_WORLD_RANK", "6"),
        ("OMPI_COMM_WORLD_SIZE", "8"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "2"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
    ];
    const PMI: &[(&str, &str)] =
        &[("PMI_RANK", "7"), ("PMI_SIZE", "8"), ("MPI_LOCALRANKID", "3"), ("MPI_LOCALNRANKS", "4")];
    const SLURM: &[(&str, &str)] = &[
        ("SLURM_PROCID", "4"),
        ("SLURM_NTASKS", "8"),
        ("SLURM_LOCALID", "0"),
        ("SLURM_NODEID", "2"),
        ("SLURM_TASKS_PER_NODE", "2(x2),4"),
    ];

    #[test]
    fn launchers_say_the_rank() {
        for (variables, index, local) in [(TORCHRUN, 5, 1), (OPEN_MPI, 6, 2), (PMI, 7, 3), (SLURM, 4, 0)] {
            let want = Rank::new(index, 8).unwrap().on_machine(local, 4).unwrap();
            assert_eq!(rank(variables).unwrap(), Some(want), "{variables:?}");
            // Some launchers do not tell the machine.
            let alone = Rank::new(index, 8).unwrap();
            assert_eq!(rank(&variables[..2]).unwrap(), Some(alone), "{variables:?}");
            assert_eq!(rank(&variables[..1]).unwrap(), None, "half of it is some other program's variable");
        }
        assert_eq!(rank(&[]).unwrap(), None);
        for alone in [("RANK", "gold"), ("WORLD_SIZE", "large"), ("PMI_RANK", ""), ("SLURM_NTASKS", "many")] {
            assert_eq!(rank(&[alone]).unwrap(), None, "{alone:?}");
            assert_eq!(rank(&[SLURM, &[alone]].concat()).unwrap().map(Rank::rank), Some(4), "{alone:?}");
        }
    }

    #[test]
    fn the_inner_launcher_counts() {
        let all = |order: &[&[(&'static str, &'static str)]]| rank(&order.concat()).unwrap().unwrap().rank();
        assert_eq!(all(&[SLURM, PMI, OPEN_MPI, TORCHRUN]), 5);
        assert_eq!(all(&[SLURM, PMI, OPEN_MPI]), 6);
        assert_eq!(all(&[SLURM, PMI]), 7);
        // One process a step, in a job of eight tasks.
        assert_eq!(rank(&[SLURM, &[("SLURM_STEP_NUM_TASKS", "5")]].concat()).unwrap().unwrap().world_size(), 5);
    }

    #[test]
    fn wrong_variables_are_named() {
        for (variables, words) in [
            (&[("RANK", "x"), ("WORLD_SIZE", "2")][..], "RANK"),
            (&[("RANK", "2"), ("WORLD_SIZE", "2")], "WORLD_SIZE"),
            (&[("RANK", "0"), ("WORLD_SIZE", "")], "WORLD_SIZE"),
            (&[("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "3")], "PMI_SIZE"),
            (&[("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "3")], "torchrun"),
        ] {
            let error = rank(variables).unwrap_err();
            assert!(error.is_parameter() && error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn slurm_lists_have_repetitions() {
        assert_eq!([0, 1, 2, 3].map(|node| listed("4(x2),3", node)), [Some(4), Some(4), Some(3), None]);
        assert_eq!(["", "x", "4(x", "4(x4294967295),3(x9)"].map(|list| listed(list, u32::MAX)), [None; 4]);
    }

    #[test]
    fn processors_are_divided_and_one_is_left() {
        let of = |count, processors| Rank::new(0, count).unwrap().threads_of(processors);
        assert_eq!([of(1, 16), of(4, 16), of(4, 8), of(4, 4), of(4, 1)], [15, 3, 1, 1, 1]);
        let two_machines = Rank::new(0, 8).unwrap().on_machine(0, 4).unwrap();
        assert_eq!(two_machines.threads_of(16), 3);
    }
}
