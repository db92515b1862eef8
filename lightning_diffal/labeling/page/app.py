"""The routes of the page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from lightning_diffal.labeling.page.access import Access
from lightning_diffal.labeling.page.served_pictures import read_picture
from lightning_diffal.labeling.page.session import Session
from lightning_diffal.labeling.question import VERDICTS

STATIC: Final = Path(__file__).parent / "static"
TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MOST_ITEMS: Final = 100


def make_app(session: Session, token: str, host: str) -> Access:
    """The application, behind the checks of `Access`. Its addresses begin with the token."""
    files = {path.name: path.read_bytes() for path in STATIC.iterdir() if path.suffix in TYPES}

    async def static(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in files:
            return Response(status_code=404)
        return Response(files[name], media_type=TYPES[Path(name).suffix])

    async def picture(request: Request) -> Response:
        path = await run_in_threadpool(session.file, request.path_params["index"])
        found = await run_in_threadpool(read_picture, path) if path is not None else None
        return Response(found[0], media_type=found[1]) if found is not None else Response(status_code=404)

    async def neighbors(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(session.neighbors, request.path_params["index"]))

    def take(content: dict[str, Any], client: str) -> Any:
        count = content.get("count")
        if not isinstance(count, int) or not 0 <= count <= MOST_ITEMS:
            raise ValueError(f"count must be an integer from 0 to {MOST_ITEMS}")
        return session.take(client, count)

    def store(content: dict[str, Any], client: str) -> Any:
        who = content.get("who") or ""
        if not isinstance(who, str):
            raise ValueError("who must be text")
        return session.store(client, parse_answers(content.get("answers")), who[:200])

    routes = [
        Route("/", static),
        Route("/static/{name}", static),
        Route("/items/{index:int}", picture),
        Route("/api/neighbors/{index:int}", neighbors),
        Route("/api/take", call(take), methods=["POST"]),
        Route("/api/answers", call(store), methods=["POST"]),
        Route("/api/renew", call(lambda _, client: session.renew(client)), methods=["POST"]),
        Route("/api/release", call(lambda _, client: session.release(client)), methods=["POST"]),
    ]
    return Access(Starlette(routes=[Mount("/{token}", routes=routes)]), token, host)


def call(method: Callable[[dict[str, Any], str], Any]) -> Callable[[Request], Any]:
    """An endpoint that is given the JSON of a page and the page's name. What is wrong with it is told in its reply."""

    async def endpoint(request: Request) -> Response:
        try:
            content = await request.json()
            client = content.get("client") if isinstance(content, dict) else None
            if not isinstance(client, str) or not 8 <= len(client) <= 64:
                raise ValueError("client must be the name of a page")
            return JSONResponse(await run_in_threadpool(method, content, client))
        except (ValueError, RecursionError) as error:
            return JSONResponse({"error": str(error)}, 400)
        except OSError as error:
            return JSONResponse({"error": f"Not saved: {error}"}, 507)

    return endpoint


def parse_answers(content: Any) -> list[tuple[int, dict[str, Any] | None, dict[str, Any] | None]]:
    if not isinstance(content, list):
        raise ValueError("answers must be a list")
    return [(parse_index(one), parse_answer(one["answer"]), parse_answer(one["was"])) for one in content]


def parse_index(content: Any) -> int:
    complete = isinstance(content, dict) and {"index", "answer", "was"} <= content.keys()
    if not complete or type(content["index"]) is not int:
        raise ValueError("an answer needs an index, an answer and what was there")
    return int(content["index"])


def parse_answer(content: Any) -> dict[str, Any] | None:
    """None for no answer."""
    if content is None:
        return None
    if not isinstance(content, dict) or content.get("verdict") not in VERDICTS[:3]:
        raise ValueError(f"a verdict is one of {', '.join(VERDICTS[:3])}")
    if content["verdict"] != "label":
        return {"verdict": content["verdict"]}
    if not isinstance(content.get("label"), str):
        raise ValueError("a label is text")
    return {"verdict": "label", "label": content["label"]}
