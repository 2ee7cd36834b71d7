//! From arguments to an [`Action`].

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::config_file;
use super::model::{
    Action, AppContext, Binding, InheritedEnv, MachineOptions, OnHang, Options, StdinTarget,
};
use super::option_id::{EnvOption, HostsOption, MachineOption, OptionId};
use super::table::{self, OPTIONS};
use super::values::{self, HOST_TIMEOUT_DEFAULT};
use crate::hosts::MapBy;
use ferry_job::InitialErrhandler;

/// Reads the arguments, without the command's own name. `variable` looks a name up in the
/// environment.
///
/// # Errors
/// One line that says which argument is wrong and what it should be.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Action, String> {
    let mut parser = Parser::new(&variable)?;
    let mut arguments = arguments.into_iter();
    loop {
        match parser.app_context(&mut arguments)? {
            AppEnd::Last => break,
            AppEnd::More => {}
            AppEnd::Instead(action) => return Ok(action),
        }
    }
    parser.finish(&variable)
}

/// What comes after a program and its arguments.
enum AppEnd {
    /// Another program.
    More,
    /// Nothing.
    Last,
    /// An option asks for something else than a job.
    Instead(Action),
}

/// What has been read so far.
struct Parser {
    options: Options,
    machine: MachineOptions,
    /// -genvall, -genvnone, -genvlist.
    global_inherited: Option<InheritedEnv>,
    /// -genv, -x, and the options that set variables.
    global_env: Vec<(OsString, OsString)>,
    /// The present arguments come from a file of programs.
    in_file: bool,
}

/// An option as it was given, and where its values come from.
struct Given<'a, I> {
    /// The whole argument, for errors.
    argument: String,
    /// The value after an equal sign.
    inline: Option<String>,
    /// Values that the option takes.
    values: usize,
    /// The arguments after it.
    arguments: &'a mut I,
}

impl<I: Iterator<Item = OsString>> Given<'_, I> {
    /// The next value.
    fn value(&mut self) -> Result<OsString, String> {
        // Only an option with one value can have it after an equal sign.
        let inline = self.inline.take_if(|_| self.values == 1);
        let value = inline.map(OsString::from).or_else(|| self.arguments.next());
        value.ok_or_else(|| {
            let expected = if self.values == 2 {
                "a name and a value after it"
            } else {
                "a value after it"
            };
            format!("{} wants {expected}", self.argument)
        })
    }

    /// The next value as text.
    fn text(&mut self) -> Result<String, String> {
        Ok(self.value()?.to_string_lossy().into_owned())
    }

    /// The next value as `read` understands it, which gets the argument for its errors.
    fn value_as<T>(
        &mut self,
        read: impl FnOnce(&str, &OsStr) -> Result<T, String>,
    ) -> Result<T, String> {
        let value = self.value()?;
        read(&self.argument, &value)
    }

    /// As [`Given::value_as`], of text.
    fn text_as<T>(
        &mut self,
        read: impl FnOnce(&str, &str) -> Result<T, String>,
    ) -> Result<T, String> {
        let text = self.text()?;
        read(&self.argument, &text)
    }

    /// A variable's name and its value.
    fn assignment(&mut self) -> Result<(OsString, OsString), String> {
        let name = self.value()?;
        Ok((values::env_name(&self.argument, name)?, self.value()?))
    }
}

impl Parser {
    /// The defaults, from the environment where it says something.
    fn new(variable: &impl Fn(&str) -> Option<String>) -> Result<Parser, String> {
        let options = Options {
            apps: Vec::new(),
            label: false,
            stdin: StdinTarget::Rank(0),
            timeout: variable("MPIEXEC_TIMEOUT")
                .map(|v| values::seconds("MPIEXEC_TIMEOUT", &v))
                .transpose()?,
            bind: Binding::Share,
            report_bindings: false,
            allow_other_mpi: false,
            on_hang: variable("FERRY_ON_HANG")
                .map_or(Ok(OnHang::End), |v| values::on_hang("FERRY_ON_HANG", &v))?,
            verbose: false,
            hosts: None,
            map_by: MapBy::Slot,
            rank_by: None,
            launcher: variable("FERRY_LAUNCHER"),
            launcher_path: None,
            host_timeout: variable("FERRY_HOST_TIMEOUT").map_or(Ok(HOST_TIMEOUT_DEFAULT), |v| {
                values::host_timeout("FERRY_HOST_TIMEOUT", &v)
            })?,
            names: None,
            universe: None,
            machine: None,
        };
        Ok(Parser {
            options,
            machine: MachineOptions::default(),
            global_inherited: None,
            global_env: Vec::new(),
            in_file: false,
        })
    }

    /// Reads one program with the options before it and the arguments after it.
    fn app_context(
        &mut self,
        arguments: &mut impl Iterator<Item = OsString>,
    ) -> Result<AppEnd, String> {
        let mut app = AppContext::default();
        let program = loop {
            let Some(argument) = arguments.next() else {
                break None;
            };
            if argument == "--" {
                break arguments.next();
            }
            let Some(name) = table::option_name(&argument) else {
                break Some(argument);
            };
            let (name, inline) = table::split_inline_value(&name);
            let Some(option) = OPTIONS.iter().find(|o| o.is_called(name)) else {
                return Err(table::unknown(&argument, name));
            };
            let mut given = Given {
                argument: argument.to_string_lossy().into_owned(),
                inline: inline.map(String::from),
                values: option.values.len(),
                arguments,
            };
            match option.id {
                OptionId::Help => return Ok(AppEnd::Instead(Action::Help)),
                OptionId::Version => return Ok(AppEnd::Instead(Action::Version)),
                OptionId::ConfigFile => {
                    let file = PathBuf::from(given.value()?);
                    let option = given.argument;
                    if app != AppContext::default() {
                        return Err(format!(
                            "{option}: options of one program go into the file's lines"
                        ));
                    }
                    let end = self.config_file(&option, &file)?;
                    return after_config_file(end, &option, arguments.next());
                }
                id => self.apply(id, given, &mut app)?,
            }
        };
        let Some(program) = program.filter(|p| p != ":") else {
            return Err(if self.options.apps.is_empty() {
                "no program given; try: mpiexec -n 2 PROGRAM (or mpiexec -h)".into()
            } else {
                "no program given after ':'".into()
            });
        };
        app.program = program;
        if let Some(soft) = &app.soft {
            app.count = Some(values::soft_count(soft, app.count)?);
        }
        let mut end = AppEnd::Last;
        for argument in arguments.by_ref() {
            if argument == ":" {
                end = AppEnd::More;
                break;
            }
            app.arguments.push(argument);
        }
        self.options.apps.push(app);
        Ok(end)
    }

    /// Reads the programs of a file.
    fn config_file(&mut self, option: &str, file: &Path) -> Result<AppEnd, String> {
        if std::mem::replace(&mut self.in_file, true) {
            return Err(format!("{option} within a file of programs"));
        }
        for line in config_file::lines(option, file)? {
            let mut arguments = line.arguments.into_iter();
            loop {
                let end = self
                    .app_context(&mut arguments)
                    .map_err(|e| format!("{}, line {}: {e}", file.display(), line.number))?;
                match end {
                    AppEnd::Last => break,
                    AppEnd::More => {}
                    AppEnd::Instead(action) => return Ok(AppEnd::Instead(action)),
                }
            }
        }
        self.in_file = false;
        Ok(AppEnd::Last)
    }

    /// Does what an option says.
    fn apply(
        &mut self,
        id: OptionId,
        mut given: Given<'_, impl Iterator<Item = OsString>>,
        app: &mut AppContext,
    ) -> Result<(), String> {
        let options = &mut self.options;
        match id {
            OptionId::Count => app.count = Some(given.value_as(values::count)?),
            OptionId::Soft => app.soft = Some(given.text()?),
            OptionId::Wdir => app.wdir = Some(given.value()?.into()),
            OptionId::Path => app.path = given.value()?,
            OptionId::Env(id) => return self.apply_env(id, given, app),
            OptionId::AllowOtherMpi => options.allow_other_mpi = true,
            OptionId::Label => options.label = true,
            OptionId::Stdin => options.stdin = given.value_as(values::stdin_target)?,
            OptionId::Timeout => options.timeout = Some(given.text_as(values::seconds)?),
            OptionId::OnHang => options.on_hang = given.text_as(values::on_hang)?,
            OptionId::Verbose => options.verbose = true,
            OptionId::Bind => options.bind = given.text_as(values::binding)?,
            OptionId::BindCore => options.bind = Binding::Core,
            OptionId::BindNone => options.bind = Binding::None,
            OptionId::ReportBindings => options.report_bindings = true,
            OptionId::Hosts(id) => return self.apply_hosts(id, given, app),
            OptionId::Universe => {
                options.universe = Some(given.value_as(values::count)?);
            }
            OptionId::Names => options.names = Some(given.text()?),
            OptionId::Machine(id) => return self.apply_machine(id, given),
            OptionId::Ignored => {
                for _ in 0..given.values {
                    given.value()?;
                }
            }
            // They end the parsing and never come here.
            OptionId::Help | OptionId::Version | OptionId::ConfigFile => {}
        }
        Ok(())
    }

    /// Does what an option says of the environment.
    fn apply_env(
        &mut self,
        id: EnvOption,
        mut given: Given<'_, impl Iterator<Item = OsString>>,
        app: &mut AppContext,
    ) -> Result<(), String> {
        let only = InheritedEnv::Only;
        match id {
            EnvOption::Set => app.set_env.push(given.assignment()?),
            EnvOption::InheritAll => app.inherited_env = InheritedEnv::All,
            EnvOption::InheritNone => app.inherited_env = only(Vec::new()),
            EnvOption::InheritList => app.inherited_env = only(values::list(&given.value()?)),
            EnvOption::GlobalSet => self.global_env.push(given.assignment()?),
            EnvOption::GlobalInheritAll => self.global_inherited = Some(InheritedEnv::All),
            EnvOption::GlobalInheritNone => self.global_inherited = Some(only(Vec::new())),
            EnvOption::GlobalInheritList => {
                self.global_inherited = Some(only(values::list(&given.value()?)));
            }
            EnvOption::Export => self.export(&given.argument.clone(), given.value()?)?,
            EnvOption::InitialErrhandler => {
                let handler = given.text_as(values::initial_errhandler)?;
                let variable = InitialErrhandler::VARIABLE.into();
                app.set_env.push((variable, handler.name().into()));
            }
            EnvOption::Overlap => {
                let mode = values::overlap(&given.argument, given.inline.as_deref())?;
                self.global_env.push(("FERRY_OVERLAP".into(), mode.into()));
            }
            EnvOption::OverlapReport => {
                let report = ("FERRY_OVERLAP_REPORT".into(), "1".into());
                self.global_env.push(report);
            }
        }
        Ok(())
    }

    /// Exports a variable: NAME=VALUE, or the NAME of one that mpiexec has.
    fn export(&mut self, argument: &str, text: OsString) -> Result<(), String> {
        let text = text.into_vec();
        if let Some(at) = text.iter().position(|&b| b == b'=') {
            let (name, value) = text.split_at(at);
            let name = values::env_name(argument, OsString::from_vec(name.into()))?;
            let value = OsString::from_vec(value[1..].into());
            self.global_env.push((name, value));
        } else if let Some(InheritedEnv::Only(names)) = &mut self.global_inherited {
            names.push(OsString::from_vec(text));
        }
        Ok(())
    }

    /// Does what an option says of hosts.
    fn apply_hosts(
        &mut self,
        id: HostsOption,
        mut given: Given<'_, impl Iterator<Item = OsString>>,
        app: &mut AppContext,
    ) -> Result<(), String> {
        let options = &mut self.options;
        match id {
            HostsOption::Host => app.hosts = Some(given.text_as(values::host_list)?),
            HostsOption::Hosts => {
                options.hosts = Some(given.text_as(values::host_list)?);
            }
            HostsOption::HostFile => {
                let read = |option: &str, path: &OsStr| values::host_file(option, path.as_ref());
                options.hosts = Some(given.value_as(read)?);
            }
            HostsOption::PerHost => {
                options.map_by = MapBy::PerHost(given.value_as(values::count)?);
            }
            HostsOption::MapBy => options.map_by = given.text_as(values::map_by)?,
            HostsOption::ByNode => options.map_by = MapBy::Node,
            HostsOption::BySlot => options.map_by = MapBy::Slot,
            HostsOption::RankBy => {
                options.rank_by = Some(given.text_as(values::rank_by)?);
            }
            HostsOption::Launcher => options.launcher = Some(given.text()?),
            HostsOption::LauncherPath => options.launcher_path = Some(given.value()?.into()),
            HostsOption::HostTimeout => {
                options.host_timeout = given.text_as(values::host_timeout)?;
            }
        }
        Ok(())
    }

    /// Does what an option says of the modelled machine.
    fn apply_machine(
        &mut self,
        id: MachineOption,
        mut given: Given<'_, impl Iterator<Item = OsString>>,
    ) -> Result<(), String> {
        let machine = &mut self.machine;
        match id {
            MachineOption::Name => machine.name = given.text()?,
            MachineOption::Report => machine.report = true,
            MachineOption::Paced => machine.paced = true,
            MachineOption::Interfaces => {
                machine.interfaces = given.text_as(values::descriptors)?;
            }
            MachineOption::Check => machine.check = true,
            MachineOption::Trace => machine.trace = Some(given.value()?.into()),
            MachineOption::Compute => {
                machine.compute = Some(given.text_as(values::compute_factor)?);
            }
        }
        Ok(())
    }

    /// Applies the global options to all programs, and checks what must go together.
    fn finish(mut self, variable: &impl Fn(&str) -> Option<String>) -> Result<Action, String> {
        for app in &mut self.options.apps {
            if let (InheritedEnv::All, Some(inherited)) =
                (&app.inherited_env, &self.global_inherited)
            {
                app.inherited_env = inherited.clone();
            }
            // The later one of two values holds: a program's own.
            let mut env = self.global_env.clone();
            env.append(&mut app.set_env);
            app.set_env = env;
        }
        let hosts_given =
            self.options.hosts.is_some() || self.options.apps.iter().any(|a| a.hosts.is_some());
        if !self.machine.name.is_empty() {
            if hosts_given {
                return Err("--machine and hosts: a modelled machine runs here, whole".into());
            }
            self.options.machine = Some(self.machine);
            return Ok(Action::Run(Box::new(self.options)));
        }
        if self.machine != MachineOptions::default() {
            return Err(
                "--machine-report, --machine-paced, --machine-check, --machine-trace and \
                 --machine-compute go with --machine"
                    .into(),
            );
        }
        if !hosts_given {
            self.options.hosts = values::hosts_from_environment(variable)?;
        }
        Ok(Action::Run(Box::new(self.options)))
    }
}

/// What follows the option that names a file of programs: the end of the command, or another file.
fn after_config_file(end: AppEnd, option: &str, next: Option<OsString>) -> Result<AppEnd, String> {
    match (end, next) {
        (AppEnd::Last, Some(more)) if more == ":" => Ok(AppEnd::More),
        (AppEnd::Last, Some(more)) => Err(format!(
            "{} after {option}: a program and its options go into the file",
            more.to_string_lossy()
        )),
        (end, _) => Ok(end),
    }
}
