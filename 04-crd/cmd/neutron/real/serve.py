"""OpenStack's Neutron, served on loopback until standard input ends.

Usage: serve.py CONFIG DIRECTORY ADDRESS PORT

It keeps its database in DIRECTORY and prints its URL once it accepts connections. There is no Keystone: the headers
X-User-Id, X-Project-Id and X-Roles say who the caller is, and Neutron's own policy decides what the caller may do.
"""

import logging
import os
import signal
import sys
import threading
from wsgiref import simple_server

from neutron import auth
from neutron.api import extensions
from neutron.api.v2 import router
from neutron.common import config
from neutron.db.migration.models import head
from neutron_lib.db import api as database
from oslo_config import cfg
from oslo_middleware import catch_errors
from oslo_middleware import request_id


class Server(simple_server.WSGIServer):
    """Serves one request at a time, in the thread in which all of Neutron runs.

    SQLite allows one writer at a time, and Neutron leaves greenlets behind that must not outlive their thread.
    """

    request_queue_size = 64

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):  # the client is gone, or sent no request
            super().handle_error(request, client_address)


class Handler(simple_server.WSGIRequestHandler):
    timeout = 1  # an idle connection blocks all others

    def log_message(self, *args):
        pass


def end_with_stdin():
    """Exits with the process that started this one: it holds the other end of the pipe, even if it is killed."""
    sys.stdin.read()
    os._exit(0)


def configure(file, directory):
    config.register_common_config_options()
    cfg.CONF.set_override("state_path", directory)
    config.init(["--config-file", file])
    config.set_config_defaults()


def create_tables():
    """Creates the tables from the models, because the migrations do not work with SQLite."""
    head.get_metadata().create_all(database.get_writer_session().get_bind())


def application():
    """Returns the WSGI pipeline of api-paste.ini without the Keystone filter."""
    app = router.APIRouter()
    app = extensions.plugin_aware_extension_middleware_factory({})(app)
    app = auth.NeutronKeystoneContext(app)
    app = catch_errors.CatchErrors(app)
    return request_id.RequestId(app)


def main(file, directory, address, port):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    logging.basicConfig(level=logging.ERROR)
    threading.excepthook = lambda _: None  # newer versions notify Nova of deletions, in a thread; there is no Nova
    threading.Thread(target=end_with_stdin, daemon=True).start()
    configure(file, directory)
    create_tables()
    app = application()

    def serve(environ, start_response):
        prefix, path = "/v2.0", environ["PATH_INFO"]
        if path.startswith(prefix):
            environ["SCRIPT_NAME"], environ["PATH_INFO"] = prefix, path[len(prefix) :]
        return app(environ, start_response)

    with simple_server.make_server(address, int(port), serve, Server, Handler) as server:
        print("http://%s:%d" % (address, server.server_port), flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
