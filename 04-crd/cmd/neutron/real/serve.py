"""OpenStack's Neutron, served on loopback until standard input ends.

Usage: serve.py CONFIG DIRECTORY ADDRESS PORT

It keeps its database in DIRECTORY, and prints its URL when it is up. There is no Keystone: who asks is said in the
headers X-User-Id, X-Project-Id and X-Roles, and what they may do is decided by Neutron's own policy.
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
    """Answers one request after the other, in the thread that all of Neutron is in.

    SQLite has one writer at a time, and Neutron leaves greenlets behind that must not outlive their thread.
    """

    request_queue_size = 64

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):  # a client that is gone, or has asked nothing
            super().handle_error(request, client_address)


class Handler(simple_server.WSGIRequestHandler):
    timeout = 1  # a connection on which nothing is asked is in everybody's way

    def log_message(self, *args):
        pass


def end_with_stdin():
    """Whoever has started us holds the other end, even if only to be killed."""
    sys.stdin.read()
    os._exit(0)


def configure(file, directory):
    config.register_common_config_options()
    cfg.CONF.set_override("state_path", directory)
    config.init(["--config-file", file])
    config.set_config_defaults()


def create_tables():
    """The migrations are not written for SQLite. The models say how it ends, too."""
    head.get_metadata().create_all(database.get_writer_session().get_bind())


def application():
    """What api-paste.ini puts together, but for the filter that asks Keystone."""
    app = router.APIRouter()
    app = extensions.plugin_aware_extension_middleware_factory({})(app)
    app = auth.NeutronKeystoneContext(app)
    app = catch_errors.CatchErrors(app)
    return request_id.RequestId(app)


def main(file, directory, address, port):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever has started us
    logging.basicConfig(level=logging.ERROR)
    threading.excepthook = lambda _: None  # newer ones tell Nova what is gone, in a thread; there is no Nova
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
