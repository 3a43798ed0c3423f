"""Initial configurations from earlier studies: read once, and stored with the study."""

from __future__ import annotations

from tuner.config import StudyConfig
from tuner.errors import ConfigError, StoreError
from tuner.queries.results.best import load_top
from tuner.search.samplers.transfer import N_TRANSFERRED, TRANSFER_ATTR, Transferred, transferred
from tuner.store.connection.database import open_database
from tuner.store.optuna_tables.storage import BufferedStorage

NOTHING = Transferred(studies=(), configurations=())


def read_earlier(config: StudyConfig) -> Transferred:
    """The best configurations of the studies that a study file names.

    Each study is ranked by its own objective and direction, configurations with confirmation runs
    (`confirm`) first.

    Raises:
        ConfigError: If there is no such study in the database, or none of its trials has completed.
        StoreError: If the database cannot be read.
    """
    if not config.transfer:
        return NOTHING
    earlier = {}
    for name in config.transfer:
        try:
            found = load_top(config.storage, name, n=N_TRANSFERRED)
        except StoreError as error:
            raise ConfigError(
                f"names {name!r}, from which nothing can be taken: {error}",
                file=config.file,
                key="transfer",
            ) from error
        earlier[name] = [each.params for each in found]
    return transferred(earlier, config.search_space)


def begins_with(config: StudyConfig) -> Transferred:
    """The configurations with which a start of this study file would begin; writes nothing.

    Raises:
        TunerError: As `read_earlier` does.
    """
    if not config.transfer:
        return NOTHING
    try:
        database = open_database(config.storage, read_only=True)
    except StoreError:
        return read_earlier(config)  # Which says what is wrong with it.
    try:
        study_id = database.storage.get_study_id_from_name(config.study)
        found = noted(database.storage, study_id)
    except KeyError:
        found = None
    finally:
        database.close()
    return found or read_earlier(config)


def told(found: Transferred, config: StudyConfig) -> str:
    """The message at the start."""
    n, names = len(found.configurations), ", ".join(found.studies)
    lines = [f"begins near {n} of the best configurations of {names}", *found.notices]
    if set(found.studies) != set(config.transfer):
        lines.append(f"{config.file} names others now, which comes too late for this study")
    return "\n".join(f"transfer: {each}" for each in lines)


def noted(storage: BufferedStorage, study_id: int) -> Transferred | None:
    """The configurations with which a study has begun; None if none are recorded."""
    data = storage.get_study_user_attrs(study_id).get(TRANSFER_ATTR)
    return None if data is None else Transferred.from_data(data)


def note(storage: BufferedStorage, study_id: int, found: Transferred) -> None:
    """Later starts, and other dispatchers, need not have the earlier studies."""
    storage.set_study_user_attr(study_id, TRANSFER_ATTR, found.as_data())
